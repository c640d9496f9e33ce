#include "tiering/stores/disk_format.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiering/stores/byte_codec.h"
#include "tiering/stores/checksum.h"
#include "tiering/stores/file_descriptor.h"
#include "tiering/stores/file_error.h"
#include "tiering/stores/plain_file.h"

namespace kv {
namespace {

constexpr std::string_view kMagic = "KVDISK\r\n";
constexpr std::size_t kFormatBytesMax = 4096;
constexpr std::size_t kChecksumBytes = 4;

void encode_group(const LayerGroup& group, ByteWriter& writer) {
  writer.u8(static_cast<std::uint8_t>(group.kind));
  writer.u8(static_cast<std::uint8_t>(group.k_dtype));
  writer.u8(static_cast<std::uint8_t>(group.v_dtype));
  for (const std::uint32_t field : {group.layer_count, group.kv_head_count, group.head_dim_k,
                                    group.head_dim_v, group.window_tokens, group.sink_tokens}) {
    writer.u32(field);
  }
}

bool decode_group(ByteReader& reader, LayerGroup& group) {
  const std::uint8_t kind = reader.u8();
  const std::uint8_t k_dtype = reader.u8();
  const std::uint8_t v_dtype = reader.u8();
  for (std::uint32_t* field : {&group.layer_count, &group.kv_head_count, &group.head_dim_k,
                               &group.head_dim_v, &group.window_tokens, &group.sink_tokens}) {
    *field = reader.u32();
  }
  group.kind = static_cast<AttentionKind>(kind);
  group.k_dtype = static_cast<DType>(k_dtype);
  group.v_dtype = static_cast<DType>(v_dtype);
  return kind < kAttentionKindCount && k_dtype < kDTypeCount && v_dtype < kDTypeCount;
}

Result<void> write_whole(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return file_error(errno, "disk format: cannot write");
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(descriptor) != 0) return file_error(errno, "disk format: cannot flush");
  return {};
}

}  // namespace

std::string encode_disk_format(const DiskFormat& format) {
  ByteWriter writer;
  writer.text(kMagic);
  writer.u32(kDiskStoreVersion);
  writer.u64(format.slab_bytes);
  writer.u32(format.layout.block_tokens);
  writer.u32(static_cast<std::uint32_t>(format.layout.groups.size()));
  for (const LayerGroup& group : format.layout.groups) encode_group(group, writer);
  writer.u32(crc32c(std::as_bytes(std::span(writer.bytes()))));
  return writer.take();
}

Result<DiskFormat> decode_disk_format(std::string_view bytes) {
  constexpr std::string_view kForeign = "disk format: not the format file of a disk store";
  constexpr std::string_view kDamaged = "disk format: the file is damaged";
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + 4 + kChecksumBytes) {
    return Error{ErrorCode::corrupt, kForeign, "magic"};
  }
  // Every version ends in this checksum, so a flipped bit is never taken for another version.
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (ByteReader(bytes.substr(body.size())).u32() != crc32c(std::as_bytes(std::span(body)))) {
    return Error{ErrorCode::corrupt, kDamaged, "checksum"};
  }
  ByteReader reader(body);
  reader.take(kMagic.size());
  const std::uint32_t version = reader.u32();
  if (version < kDiskStoreVersion) {
    return Error{ErrorCode::unsupported,
                 "disk format: written by an older version; remove the directory", "version"};
  }
  if (version > kDiskStoreVersion) {
    return Error{ErrorCode::unsupported, "disk format: written by a newer version", "version"};
  }
  DiskFormat format;
  format.slab_bytes = reader.u64();
  format.layout.block_tokens = reader.u32();
  const std::uint32_t group_count = reader.u32();
  if (group_count == 0 || group_count > kLayerGroupsMax) {
    return Error{ErrorCode::corrupt, kDamaged, "groups"};
  }
  format.layout.groups.resize(group_count);
  for (LayerGroup& group : format.layout.groups) {
    if (!decode_group(reader, group)) return Error{ErrorCode::corrupt, kDamaged, "groups"};
  }
  if (!reader.ok() || reader.left() != 0) return Error{ErrorCode::corrupt, kDamaged, "length"};
  return format;
}

Result<std::optional<DiskFormat>> read_disk_format(const std::string& directory) {
  const FileDescriptor file = open_plain_file(directory + "/format", O_RDONLY);
  if (!file.is_open()) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<DiskFormat>();
    return file_error(errno, "disk format: cannot open, or no plain file");
  }
  std::array<char, kFormatBytesMax> bytes{};
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(errno, "disk format: cannot read");
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  KV_TRY(DiskFormat format, decode_disk_format(std::string_view(bytes.data(), size)));
  KV_TRY_VOID(validate(format.layout));
  return std::optional<DiskFormat>(std::move(format));
}

Result<void> write_disk_format(const std::string& directory, const DiskFormat& format) {
  const std::string path = directory + "/format";
  const std::string temp_path = path + "." + std::to_string(::getpid()) + ".tmp";
  {
    const FileDescriptor file =
        open_plain_file(temp_path, O_WRONLY | O_CREAT | O_TRUNC, S_IRUSR | S_IWUSR);
    if (!file.is_open()) return file_error(errno, "disk format: cannot create");
    KV_TRY_VOID(write_whole(file.get(), encode_disk_format(format)));
  }
  if (::rename(temp_path.c_str(), path.c_str()) != 0) {
    return file_error(errno, "disk format: cannot rename");
  }
  const FileDescriptor parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.is_open() || ::fsync(parent.get()) != 0) {
    return file_error(errno, "disk format: cannot flush the directory");
  }
  return {};
}

}  // namespace kv
