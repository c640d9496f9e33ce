// chaos_forker DIR [alone]: attaches, holds slots, forks (unless alone), and waits to be killed.
// The child lives on and tries what it must not be able to do with what it inherited; prints one
// line for each.
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugins/client/attach.h"
#include "plugins/client/client.h"
#include "tests/chaos/chaos_fixture.h"

namespace kv::test {
namespace {

constexpr SequenceId kSequence(1);
constexpr std::size_t kTokens = 40;  // three blocks

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// The end of a process that writes into the pool.
std::string try_the_pool(const client::Pool& pool) {
  const pid_t child = fork();
  if (child == 0) {
    (void)std::signal(SIGSEGV, SIG_DFL);  // a sanitizer makes an exit code of it
    pool.memory[0] = std::byte{0xEE};
    _exit(EXIT_SUCCESS);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "no process";
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "written";
}

// What the service passes over a socket: "none", or what it was.
std::string ask_for_memory(int socket) {
  const auto packet = client::encode_attach_request(client::AttachKind::device_pool, false);
  if (send(socket, packet.data(), packet.size(), MSG_NOSIGNAL) < 0) return "none";
  pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
  if (poll(&entry, 1, 20'000) != 1) return "no answer";
  std::array<std::byte, 4'096> reply{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec part{.iov_base = reply.data(), .iov_len = reply.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket, &message, 0) <= 0) return "none";
  return CMSG_FIRSTHDR(&message) == nullptr ? "none" : "a descriptor";
}

// Over every connection of the kind that attaches, among the descriptors of this process.
std::string try_the_attach_socket() {
  bool found = false;
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    int type = 0;
    socklen_t bytes = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0) continue;
    if (type != SOCK_SEQPACKET) continue;
    found = true;
    if (const auto got = ask_for_memory(descriptor); got != "none") return got;
  }
  return found ? "none" : "no such socket was inherited";
}

int live_on(client::Client& client, const client::Pool& pool, int parent) {
  pollfd dead{.fd = parent, .events = POLLIN, .revents = 0};
  if (poll(&dead, 1, 60'000) != 1) return EXIT_FAILURE;
  say("the parent is dead");
  const auto status = client.status(client::in(std::chrono::seconds(10)));
  say("a call of its client: " +
      std::string(error_name(status ? ErrorCode::ok : status.error().code)));
  say("the pool: " + try_the_pool(pool));
  say("memory over its attach socket: " + try_the_attach_socket());
  const auto attached = client.reattach(client::in(std::chrono::seconds(20)));
  say("as a client of its own: " +
      std::string(error_name(attached ? ErrorCode::ok : attached.error().code)));
  return EXIT_SUCCESS;
}

int run(const std::string& dir, bool forks) {
  client::Client::Options options;
  options.dir = dir;
  options.name = "forker";
  auto client = client::Client::connect(options);
  if (!client) return EXIT_FAILURE;
  const auto deadline = client::in(std::chrono::seconds(20));
  const auto pool = (*client)->attach_pool(stories_layout(), deadline);
  const auto prompt = prompt_of(77, kTokens);
  const bool holds = pool && (*client)->open(kSequence, test_namespace(), prompt, {}, deadline) &&
                     (*client)->admit(kSequence, 0, deadline);
  if (!holds) return EXIT_FAILURE;
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  const pid_t child = forks ? fork() : getpid();
  if (child == 0) {
    const int code = live_on(**client, *pool, self);
    client->reset();
    std::exit(code);
  }
  if (child < 0) return EXIT_FAILURE;
  say("holds slots");
  while (true) pause();
}

}  // namespace
}  // namespace kv::test

int main(int argc, char** argv) {
  try {
    return argc < 2 ? EXIT_FAILURE : kv::test::run(argv[1], argc == 2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
