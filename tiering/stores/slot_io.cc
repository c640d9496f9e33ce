#include "tiering/stores/slot_io.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator/base/check.h"
#include "tiering/stores/checksum.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/file_error.h"
#include "tiering/stores/io_pipeline.h"
#include "tiering/stores/slot_trailer.h"

namespace kv {
namespace {

std::vector<std::uint64_t> all_slot_bytes(const KvLayout& layout) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(layout.groups.size());
  for (std::uint32_t group = 0; group < layout.groups.size(); ++group) {
    bytes.push_back(DiskStore::slot_bytes(layout, GroupId(group)));
  }
  return bytes;
}

// A whole slot in memory that O_DIRECT takes.
bool moves_in_place(std::span<const std::byte> payload, std::uint64_t slot_bytes) {
  return payload.size() == slot_bytes &&
         reinterpret_cast<std::uintptr_t>(payload.data()) % kDiskUnitBytes == 0;
}

// The trailer's place in a slot; empty where rounding up left no room.
std::span<std::byte> trailer_of(std::span<std::byte> slot, std::size_t payload_bytes) {
  if (slot.size() - payload_bytes < kSlotTrailerBytes) return {};
  return slot.last(kSlotTrailerBytes);
}

}  // namespace

SlotIo::SlotIo(const Options& options, std::unique_ptr<FileIo> io)
    : io_(std::move(io)),
      files_({.directory = options.directory,
              .direct = options.direct,
              .slab_bytes = options.slab_bytes,
              .budget_bytes = options.budget_bytes,
              .slot_bytes = all_slot_bytes(options.layout)},
             *io_) {
  const std::vector<std::uint64_t> slot_bytes = all_slot_bytes(options.layout);
  slot_bytes_max_ = *std::ranges::max_element(slot_bytes);
  lanes_.resize(
      std::clamp<std::uint64_t>(kBounceBytesMax / slot_bytes_max_, 1, options.queue_depth));
}

void SlotIo::write(std::span<const BlobWrite> blobs, std::span<ErrorCode> outcomes) {
  run_jobs(*io_, static_cast<std::uint32_t>(lanes_.size()),
           {.count = blobs.size(),
            .prepare = [&](std::size_t job, std::uint32_t lane) -> std::optional<FileRequest> {
              if (outcomes[job] != ErrorCode::ok) return {};
              const Result<FileRequest> request = start_write(blobs[job], lane);
              if (request) return *request;
              outcomes[job] = request.error().code;
              return {};
            },
            .finish =
                [&](std::size_t job, std::uint32_t, int error) {
                  if (error != 0) outcomes[job] = file_error_code(error);
                }});
}

void SlotIo::read(std::span<const BlobRead> blobs, std::span<ErrorCode> outcomes) {
  run_jobs(*io_, static_cast<std::uint32_t>(lanes_.size()),
           {.count = blobs.size(),
            .prepare = [&](std::size_t job, std::uint32_t lane) -> std::optional<FileRequest> {
              if (outcomes[job] != ErrorCode::ok) return {};
              const Result<FileRequest> request = start_read(blobs[job], lane);
              if (request) return *request;
              // A slab file that is gone took the bytes with it.
              const bool gone = request.error().code == ErrorCode::not_found;
              outcomes[job] = gone ? ErrorCode::corrupt : request.error().code;
              return {};
            },
            .finish = [&](std::size_t job, std::uint32_t lane,
                          int error) { outcomes[job] = finish_read(blobs[job], lane, error); }});
}

std::span<std::byte> SlotIo::memory_for(std::span<std::byte> payload, GroupId group,
                                        std::uint32_t lane) {
  const std::uint64_t slot_bytes = files_.slot_bytes(group);
  if (moves_in_place(payload, slot_bytes)) return payload;
  if (lanes_[lane].bytes().empty()) lanes_[lane] = AlignedBuffer(slot_bytes_max_);
  if (lanes_[lane].bytes().empty()) return {};
  return lanes_[lane].bytes().first(slot_bytes);
}

Result<FileRequest> SlotIo::start_write(const BlobWrite& blob, std::uint32_t lane) {
  const BlobIdentity& identity = blob.identity;
  KV_TRY(const SlabFiles::Place place, files_.place_to_write(identity.group, identity.slot));
  // Only read from: a write request does not touch its bytes.
  const std::span<std::byte> payload(const_cast<std::byte*>(blob.payload.data()),
                                     blob.payload.size());
  const std::span<std::byte> slot = memory_for(payload, identity.group, lane);
  if (slot.empty()) return Error{ErrorCode::exhausted, "disk store: no bounce buffer", {}};
  if (slot.data() != payload.data()) {
    std::memcpy(slot.data(), payload.data(), payload.size());
    std::ranges::fill(slot.subspan(payload.size()), std::byte{0});
    const std::span<std::byte> trailer = trailer_of(slot, payload.size());
    if (!trailer.empty()) write_slot_trailer(identity, trailer);
  }
  if (crc32c(slot.first(payload.size())) != identity.checksum) {
    return Error{ErrorCode::corrupt, "disk store: the payload is not what its checksum says", {}};
  }
  return FileRequest{.kind = FileRequest::Kind::write,
                     .descriptor = place.descriptor,
                     .offset = place.offset,
                     .bytes = slot};
}

Result<FileRequest> SlotIo::start_read(const BlobRead& blob, std::uint32_t lane) {
  const BlobIdentity& identity = blob.identity;
  KV_TRY(const SlabFiles::Place place, files_.place_to_read(identity.group, identity.slot));
  const std::span<std::byte> slot = memory_for(blob.payload, identity.group, lane);
  if (slot.empty()) return Error{ErrorCode::exhausted, "disk store: no bounce buffer", {}};
  return FileRequest{.kind = FileRequest::Kind::read,
                     .descriptor = place.descriptor,
                     .offset = place.offset,
                     .bytes = slot};
}

ErrorCode SlotIo::finish_read(const BlobRead& blob, std::uint32_t lane, int error) const {
  if (error == kEndOfFileError) return ErrorCode::corrupt;
  if (error != 0) return ErrorCode::unavailable;
  const std::uint64_t slot_bytes = files_.slot_bytes(blob.identity.group);
  if (!moves_in_place(blob.payload, slot_bytes)) {
    const std::span<std::byte> slot = lanes_[lane].bytes().first(slot_bytes);
    const std::span<std::byte> trailer = trailer_of(slot, blob.payload.size());
    if (!trailer.empty() && !slot_trailer_matches(blob.identity, trailer)) {
      return ErrorCode::corrupt;
    }
    std::memcpy(blob.payload.data(), slot.data(), blob.payload.size());
  }
  // After the copy: what is summed is what the caller gets.
  return crc32c(blob.payload) == blob.identity.checksum ? ErrorCode::ok : ErrorCode::corrupt;
}

}  // namespace kv
