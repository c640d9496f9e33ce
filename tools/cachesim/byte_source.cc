#include "tools/cachesim/byte_source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

namespace kv::cachesim {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} * 1024;
constexpr Error kCutOff = {ErrorCode::corrupt, "the compressed file is cut off", "FILE"};
constexpr Error kDamaged = {ErrorCode::corrupt, "the compressed file is damaged", "FILE"};
constexpr Error kNoMemory = {ErrorCode::exhausted, "no memory to decompress the file", "FILE"};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// The file itself, through one buffer that decoders look into.
class FileBuffer {
 public:
  explicit FileBuffer(std::unique_ptr<std::FILE, CloseFile> file)
      : file_(std::move(file)), buffer_(kBufferBytes) {}

  // What is there and not consumed; reads more when there is nothing. Empty: the end.
  Result<std::span<const char>> look() {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
      if (end_ == 0 && std::ferror(file_.get()) != 0) {
        return Error{ErrorCode::unavailable, "the file cannot be read", "FILE"};
      }
    }
    return std::span<const char>(buffer_).subspan(begin_, end_ - begin_);
  }
  void consume(std::size_t bytes) {
    begin_ += bytes;
    position_ += bytes;
  }
  [[nodiscard]] std::uint64_t position() const { return position_; }

 private:
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t position_ = 0;
};

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(FileBuffer file) : file_(std::move(file)) {}
  Result<std::size_t> read(std::span<char> into) override {
    KV_TRY(const auto there, file_.look());
    const std::size_t bytes = std::min(there.size(), into.size());
    std::copy_n(there.begin(), bytes, into.begin());
    file_.consume(bytes);
    return bytes;
  }
  [[nodiscard]] std::uint64_t file_position() const override { return file_.position(); }

 private:
  FileBuffer file_;
};

// Several members may follow each other, as `cat a.gz b.gz` makes them.
class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(FileBuffer file) : file_(std::move(file)) {
    constexpr int kGzipHeader = 16;
    ready_ = inflateInit2(&stream_, MAX_WBITS + kGzipHeader) == Z_OK;
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  GzipSource(GzipSource&&) = delete;
  GzipSource& operator=(GzipSource&&) = delete;
  ~GzipSource() override {
    if (ready_) inflateEnd(&stream_);
  }
  Result<std::size_t> read(std::span<char> into) override {
    if (!ready_) return kNoMemory;
    for (;;) {
      KV_TRY(const auto there, file_.look());
      if (there.empty()) {
        if (inside_) return kCutOff;
        return std::size_t{0};
      }
      if (!inside_ && inflateReset(&stream_) != Z_OK) return kDamaged;
      inside_ = true;
      // zlib takes the input as mutable, and does not change it.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(there.data()));
      stream_.avail_in = static_cast<uInt>(there.size());
      stream_.next_out = reinterpret_cast<Bytef*>(into.data());
      stream_.avail_out = static_cast<uInt>(std::min(into.size(), kBufferBytes));
      const std::size_t room = stream_.avail_out;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return kDamaged;
      file_.consume(there.size() - stream_.avail_in);
      if (status == Z_STREAM_END) inside_ = false;
      if (room > stream_.avail_out) return room - stream_.avail_out;
    }
  }
  [[nodiscard]] std::uint64_t file_position() const override { return file_.position(); }

 private:
  FileBuffer file_;
  z_stream stream_{};
  bool ready_ = false;
  bool inside_ = false;  // a member
};

class XzSource final : public ByteSource {
 public:
  explicit XzSource(FileBuffer file) : file_(std::move(file)) {
    constexpr std::uint64_t kMemoryMax = 256U << 20U;
    ready_ = lzma_stream_decoder(&stream_, kMemoryMax, LZMA_CONCATENATED) == LZMA_OK;
  }
  XzSource(const XzSource&) = delete;
  XzSource& operator=(const XzSource&) = delete;
  XzSource(XzSource&&) = delete;
  XzSource& operator=(XzSource&&) = delete;
  ~XzSource() override { lzma_end(&stream_); }
  Result<std::size_t> read(std::span<char> into) override {
    if (!ready_) return kNoMemory;
    while (!ended_) {
      KV_TRY(const auto there, file_.look());
      stream_.next_in = reinterpret_cast<const std::uint8_t*>(there.data());
      stream_.avail_in = there.size();
      stream_.next_out = reinterpret_cast<std::uint8_t*>(into.data());
      stream_.avail_out = into.size();
      const lzma_ret status = lzma_code(&stream_, there.empty() ? LZMA_FINISH : LZMA_RUN);
      file_.consume(there.size() - stream_.avail_in);
      ended_ = status == LZMA_STREAM_END;
      if (status == LZMA_BUF_ERROR) return kCutOff;
      if (status == LZMA_MEM_ERROR || status == LZMA_MEMLIMIT_ERROR) return kNoMemory;
      if (status != LZMA_OK && !ended_) return kDamaged;
      if (stream_.avail_out < into.size()) return into.size() - stream_.avail_out;
    }
    return std::size_t{0};
  }
  [[nodiscard]] std::uint64_t file_position() const override { return file_.position(); }

 private:
  FileBuffer file_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ready_ = false;
  bool ended_ = false;
};

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(FileBuffer file) : file_(std::move(file)), stream_(ZSTD_createDStream()) {}
  Result<std::size_t> read(std::span<char> into) override {
    if (stream_ == nullptr) return kNoMemory;
    for (;;) {
      KV_TRY(const auto there, file_.look());
      if (there.empty() && !inside_) return std::size_t{0};
      ZSTD_inBuffer in{there.data(), there.size(), 0};
      ZSTD_outBuffer out{into.data(), into.size(), 0};
      const std::size_t status = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(status) != 0) return kDamaged;
      file_.consume(in.pos);
      inside_ = status != 0;
      if (out.pos > 0) return out.pos;
      if (there.empty()) return kCutOff;
    }
  }
  [[nodiscard]] std::uint64_t file_position() const override { return file_.position(); }

 private:
  FileBuffer file_;
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  bool inside_ = false;  // a frame
};

bool starts_with(std::span<const char> bytes, std::string_view magic) {
  return std::string_view(bytes.data(), bytes.size()).starts_with(magic);
}

}  // namespace

Result<OpenedFile> open_file(const std::string& path) {
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem)) {
    return Error{ErrorCode::invalid, "is a directory, not a file", "FILE"};
  }
  std::unique_ptr<std::FILE, CloseFile> opened(std::fopen(path.c_str(), "rb"));
  if (opened == nullptr) {
    return errno == ENOENT ? Error{ErrorCode::not_found, "no such file", "FILE"}
                           : Error{ErrorCode::unavailable, "the file cannot be opened", "FILE"};
  }
  OpenedFile result;
  const auto size = std::filesystem::file_size(path, problem);
  result.file_bytes = problem ? 0 : size;
  FileBuffer file(std::move(opened));
  KV_TRY(const auto there, file.look());
  if (starts_with(there, "\x1f\x8b")) {
    result.bytes = std::make_unique<GzipSource>(std::move(file));
  } else if (starts_with(there, std::string_view("\xFD"
                                                 "7zXZ\0",
                                                 6))) {
    result.bytes = std::make_unique<XzSource>(std::move(file));
  } else if (starts_with(there, "\x28\xB5\x2F\xFD")) {
    result.bytes = std::make_unique<ZstdSource>(std::move(file));
  } else {
    result.bytes = std::make_unique<PlainSource>(std::move(file));
  }
  return result;
}

}  // namespace kv::cachesim
