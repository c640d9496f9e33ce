// Any bytes, at an aligned and at a misaligned address: decoding never reads outside of them, and
// what it accepts is right in form.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "allocator/base/check.h"
#include "cachesvc/wire/codec.h"
#include "tests/cachesvc/wire/form_report.h"

namespace {

void decode(kv::codec::RequestDecoder& decoder, std::span<const std::byte> bytes) {
  const auto request = decoder.decode(bytes);
  if (request) {
    KV_CHECK(kv::testing::form_report(request->input).error.empty());
  } else {
    KV_CHECK(!request.error().reason.empty());
  }
  const auto attach = kv::codec::decode_attach_request(bytes);
  if (attach) KV_CHECK(static_cast<int>(attach->kind) < 3);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static kv::codec::RequestDecoder decoder;
  // Copies that end where the content ends.
  const auto aligned = std::make_unique<std::byte[]>(size);
  const auto shifted = std::make_unique<std::byte[]>(size + 1);
  if (size > 0) {
    std::memcpy(aligned.get(), data, size);
    std::memcpy(shifted.get() + 1, data, size);
  }
  decode(decoder, {aligned.get(), size});
  decode(decoder, {shifted.get() + 1, size});
  return 0;
}
