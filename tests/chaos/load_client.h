// A client that works on a service that may die at any moment: each call has a deadline and is
// measured against it; blocks hold bytes that follow from their tokens, and every block that was
// hit is checked. Owner: one thread of a test. After an error of the attachment: attach() again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugins/client/client.h"

namespace kv::test {

class LoadClient {
 public:
  struct Options {
    std::string dir;
    std::string name = "load";
    std::chrono::milliseconds call_time = std::chrono::seconds(20);
    KvLayout layout;
    NamespaceFields fields;
  };
  struct Counts {
    std::uint64_t calls = 0;
    std::uint64_t right_blocks = 0, wrong_blocks = 0;  // of those that were hit
    std::chrono::milliseconds worst_overrun{0};        // of a call beyond its deadline
  };
  explicit LoadClient(Options options);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;
  LoadClient(LoadClient&&) = delete;
  LoadClient& operator=(LoadClient&&) = delete;

  // Attaches, or attaches anew, with the pool.
  [[nodiscard]] Result<void> attach();
  [[nodiscard]] bool is_attached() const { return client_ != nullptr; }

  // Opens and admits: the sequence holds its slots until finish() or abandonment.
  [[nodiscard]] Result<client::Admission> begin(SequenceId id, std::span<const Token> prompt,
                                                bool skip_read = false);
  // Checks the blocks that were hit and writes the others.
  void compute(const client::Admission& admission, std::span<const Token> prompt);
  // Publishes what is full, and frees.
  [[nodiscard]] Result<client::Account> finish(SequenceId id, std::size_t tokens);
  [[nodiscard]] Result<void> free(std::span<const SequenceId> ids);
  // All of it, for a new sequence; waits while the device tier is exhausted.
  [[nodiscard]] Result<client::Account> run(std::span<const Token> prompt);
  [[nodiscard]] Result<client::FlushOutcome> flush();
  [[nodiscard]] Result<client::ServiceStatus> status();
  [[nodiscard]] Result<client::LookupHits> lookup(std::span<const Token> prompt);

  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const client::Pool& pool() const { return pool_; }
  [[nodiscard]] std::span<std::byte> slot(SlotId slot) const;
  [[nodiscard]] std::uint32_t slot_count() const { return pool_.groups.at(0).slot_count; }
  [[nodiscard]] client::Client& client() const { return *client_; }
  [[nodiscard]] std::vector<std::byte> bytes_of(std::span<const Token> prefix) const;

 private:
  template <class Call>
  auto timed(Call call);

  Options options_;
  std::unique_ptr<client::Client> client_;
  client::Pool pool_;
  Counts counts_;
  std::uint64_t steps_ = 0;
  std::uint64_t sequences_ = 0;
};

}  // namespace kv::test
