// AttachSocket: the client's end of the attach socket (schemas/attach.fbs): who we are, by the
// kernel's word, and the memory that the service passes as descriptors. Owner: one Connection.
// Threads: one caller at a time. Cost: one packet each way a call. Packets carry no request id, so
// one reply that did not come in time makes the socket useless (a later reply would be taken for
// another's): every later call fails, attach again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "plugins/client/messages.h"
#include "plugins/client/pool_memory.h"
#include "plugins/client/session.h"

namespace kv::client {

enum class AttachKind : std::uint8_t { enter, device_pool, host_arena };

struct AttachAnswer {
  Id128 boot;
  ClientId client = ClientId(0);
  Id128 secret;
  std::uint64_t bytes = 0;
  bool writable = false;
};

[[nodiscard]] std::vector<std::byte> encode_attach_request(AttachKind kind, bool admin);
// fails: corrupt (no valid packet), or with the service's own refusal.
[[nodiscard]] Result<AttachAnswer> decode_attach_reply(std::span<const std::byte> packet);

class AttachSocket {
 public:
  // fails: unavailable (nobody listens there), deadline.
  [[nodiscard]] static Result<AttachSocket> connect(const std::string& path, Deadline deadline);

  AttachSocket() = default;
  AttachSocket(AttachSocket&& other) noexcept;
  AttachSocket& operator=(AttachSocket&& other) noexcept;
  AttachSocket(const AttachSocket&) = delete;
  AttachSocket& operator=(const AttachSocket&) = delete;
  ~AttachSocket();

  // The client's identity. fails: denied, corrupt, unavailable, deadline.
  [[nodiscard]] Result<AttachAnswer> enter(bool admin, Deadline deadline);
  // The pool's memory, once AttachPool was answered. fails: as enter, and invalid
  // (PoolMemory::map).
  [[nodiscard]] Result<PoolMemory> device_pool(std::uint64_t bytes, Deadline deadline);
  // The host tier's memory, for reading only. fails: as device_pool; unavailable without the tier.
  [[nodiscard]] Result<PoolMemory> host_arena(Deadline deadline);

  // For poll: readable or hung up while no call is under way means that the service is gone.
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  struct Packet;
  Result<AttachAnswer> exchange(AttachKind kind, bool admin, Deadline deadline, Packet& packet);

  int descriptor_ = -1;
  bool lost_ = false;
};

}  // namespace kv::client
