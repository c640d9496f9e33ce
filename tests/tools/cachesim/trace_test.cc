// Readers of every format, what they count, and what they say about damage.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/tools/cachesim/temp_folder.h"
#include "tools/cachesim/byte_source.h"
#include "tools/cachesim/line_reader.h"
#include "tools/cachesim/read_trace.h"
#include "tools/cachesim/reuse.h"
#include "tools/cachesim/tar_reader.h"
#include "tools/cachesim/trace_builder.h"

namespace kv::cachesim {
namespace {

using Blocks = std::vector<std::uint32_t>;
using kv::test::TempFolder;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string xz(const std::string& text) {
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr,
                                    reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
                                    reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

std::string zstd(const std::string& text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the zstd program does
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

Result<std::string> read_all(const std::string& path) {
  KV_TRY(const OpenedFile file, open_file(path));
  std::string text;
  std::vector<char> buffer(1000);
  for (;;) {
    KV_TRY(const std::size_t bytes, file.bytes->read(buffer));
    if (bytes == 0) return text;
    text.append(buffer.data(), bytes);
  }
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919 % 65'537) + "\n";
  return text;
}

TEST(ByteSource, ReadsGzipXzZstdAndPlainFilesAlike) {
  const TempFolder folder;
  const std::string text = long_text();
  for (const std::string& bytes : {text, gzip(text), xz(text), zstd(text)}) {
    const auto got = read_all(folder.file("file", bytes));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(*got, text);
  }
}

TEST(ByteSource, ReadsFilesThatFollowEachOtherInOne) {
  const TempFolder folder;
  for (const auto& compress : {gzip, xz, zstd}) {
    const auto got = read_all(folder.file("file", compress("one\n") + compress("two\n")));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(*got, "one\ntwo\n");
  }
}

TEST(ByteSource, TellsAFileThatIsCutOffOrDamaged) {
  const TempFolder folder;
  const std::string text = long_text();
  for (const auto& compress : {gzip, xz, zstd}) {
    const std::string whole = compress(text);
    const auto cut = read_all(folder.file("cut", whole.substr(0, whole.size() / 2)));
    ASSERT_FALSE(cut.has_value());
    EXPECT_EQ(cut.error().code, ErrorCode::corrupt);
    std::string damaged = whole;
    for (std::size_t i = 100; i < 200; ++i) damaged[i] = static_cast<char>(~damaged[i]);
    const auto got = read_all(folder.file("damaged", damaged));
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, ErrorCode::corrupt);
  }
  EXPECT_EQ(read_all(folder.path("nothing")).error().code, ErrorCode::not_found);
  EXPECT_EQ(read_all(folder.path("")).error().code, ErrorCode::invalid);
}

TEST(LineReader, GivesEveryLineWithItsNumber) {
  const TempFolder folder;
  auto file = open_file(folder.file("lines", "one\r\n\n" + std::string(200'000, 'x') + "\nlast"));
  ASSERT_TRUE(file.has_value());
  LineReader lines(*file->bytes);
  std::vector<std::size_t> sizes;
  for (std::string_view line;;) {
    const auto more = lines.next(line);
    ASSERT_TRUE(more.has_value());
    if (!*more) break;
    sizes.push_back(line.size());
    EXPECT_EQ(lines.number(), sizes.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{3, 0, 200'000, 4}));
}

Trace read_well(const std::string& path, const ReadOptions& options = {}) {
  Trace trace;
  const auto done = read_trace(path, options, trace);
  EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().reason);
  return trace;
}

std::vector<Blocks> prompts(const Trace& trace) {
  std::vector<Blocks> all;
  for (const TraceRequest& request : trace.requests) {
    all.emplace_back();
    trace.expand(request, all.back());
  }
  return all;
}

std::vector<std::uint64_t> times(const Trace& trace) {
  std::vector<std::uint64_t> all;
  all.reserve(trace.requests.size());
  for (const TraceRequest& request : trace.requests) all.push_back(request.time_ms);
  return all;
}

constexpr const char* kMooncake =
    R"({"timestamp": 5, "input_length": 1500, "output_length": 7, "hash_ids": [40, 50, 60]}
{"timestamp": 9, "input_length": 1024, "output_length": 0, "hash_ids": [40, 70]}
)";

TEST(Mooncake, RequestsBecomeBlocksInTheOrderOfFirstUse) {
  const TempFolder folder;
  const Trace trace = read_well(folder.file("trace", kMooncake));
  EXPECT_EQ(trace.format, "mooncake");
  EXPECT_EQ(trace.block_tokens, 512U);
  EXPECT_EQ(prompts(trace), (std::vector<Blocks>{{0, 1, 2}, {0, 3}}));
  EXPECT_EQ(times(trace), (std::vector<std::uint64_t>{5, 9}));
  EXPECT_EQ(trace.requests[0].output_tokens, 7U);
  EXPECT_EQ(trace.tokens_of(trace.requests[0], 2), 1024U);
  EXPECT_EQ(trace.tokens_of(trace.requests[0], 3), 1500U);
}

TEST(Mooncake, BlocksAreAsLargeAsTheTraceOrTheCommandSays) {
  const TempFolder folder;
  for (const char* name : {"block_size", "block_tokens"}) {
    const std::string text = "{\"" + std::string(name) + "\": 64}\n" + kMooncake;
    EXPECT_EQ(read_well(folder.file("trace", text)).block_tokens, 64U);
    EXPECT_EQ(read_well(folder.file("trace", text)).broken_lines, 0U);
    ReadOptions options;
    options.block_tokens = 16;
    EXPECT_EQ(read_well(folder.file("trace", text), options).block_tokens, 16U);
  }
}

TEST(Mooncake, AnIdInAnotherContextIsAnotherBlock) {
  const TempFolder folder;
  const Trace trace =
      read_well(folder.file("trace", R"({"timestamp": 0, "input_length": 9, "hash_ids": [1, 2]}
{"timestamp": 0, "input_length": 9, "hash_ids": [3, 2]}
{"timestamp": 0, "input_length": 9, "hash_ids": [3, 2]}
{"timestamp": 0, "input_length": 9, "hash_ids": [1, 2]}
)"));
  EXPECT_EQ(prompts(trace), (std::vector<Blocks>{{0, 1}, {2, 3}, {2, 3}, {0, 1}}));
  EXPECT_EQ(trace.parents, (Blocks{kNoBlock, 0, kNoBlock, 2}));
  EXPECT_EQ(trace.depths, (Blocks{0, 1, 0, 1}));
}

TEST(Mooncake, BrokenLinesAreCountedAndTheFirstIsNamed) {
  const TempFolder folder;
  const std::string broken[] = {"{",
                                "[]",
                                R"({"timestamp": 0, "input_length": 9})",
                                R"({"timestamp": 0, "input_length": 9, "hash_ids": 5})",
                                R"({"timestamp": 0, "input_length": -9, "hash_ids": [1]})",
                                R"({"timestamp": 0, "input_length": 9, "hash_ids": [1.5]})",
                                R"({"timestamp": 0, "input_length": 9, "hash_ids": ["a"]})",
                                R"({"timestamp": "x", "input_length": 9, "hash_ids": [1]})",
                                R"({"input_length": 9, "hash_ids": [1]})",
                                R"({"block_size": 0})"};
  for (const std::string& line : broken) {
    SCOPED_TRACE(line);
    std::string text = kMooncake;
    text.append(line).append("\n").append(line).append("\n").append(kMooncake);
    const std::string path = folder.file("trace", text);
    const Trace trace = read_well(path);
    EXPECT_EQ(trace.requests.size(), 4U);
    EXPECT_EQ(trace.broken_lines, 2U);
    EXPECT_EQ(trace.first_broken_line, 3U);
    EXPECT_FALSE(trace.first_broken_reason.empty());
    ReadOptions strict;
    strict.strict = true;
    Trace stopped;
    EXPECT_EQ(read_trace(path, strict, stopped).error().code, ErrorCode::invalid);
    EXPECT_EQ(stopped.first_broken_line, 3U);
  }
}

constexpr const char* kWeka =
    R"({"session":0,"trace":"trace_0001","block_size":64}
{"s":0,"a":0,"t":0.0,"in":130,"out":5,"h":[[1,2]]}
{"s":0,"a":0,"t":90.5,"in":200,"out":5,"h":[[1,2],[7,1]]}
{"session":1,"trace":"trace_0002","block_size":64}
{"s":1,"a":0,"t":0.25,"in":64,"out":1,"h":[[1,1]]}
)";

TEST(Weka, SessionsAreStaggeredAndShareNothing) {
  const TempFolder folder;
  const std::string path = folder.file("trace", kWeka);
  const Trace trace = read_well(path);
  EXPECT_EQ(trace.format, "weka");
  EXPECT_EQ(trace.block_tokens, 64U);
  EXPECT_EQ(times(trace), (std::vector<std::uint64_t>{0, 60'250, 90'500}));
  EXPECT_EQ(prompts(trace), (std::vector<Blocks>{{0, 1}, {2}, {0, 1, 3}}));
  ReadOptions options;
  options.stagger_ms = 0;
  EXPECT_EQ(times(read_well(path, options)), (std::vector<std::uint64_t>{0, 250, 90'500}));
  options.sessions = 1;
  EXPECT_EQ(times(read_well(path, options)), (std::vector<std::uint64_t>{0, 90'500}));
}

std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size[12];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  header.replace(124, 11, size);
  header[156] = type;
  header.replace(257, 5, "ustar");
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof text, "%06o", sum);
  header.replace(148, 7, std::string(text, 7));
  const std::size_t padding = (512 - content.size() % 512) % 512;
  return header + content + std::string(padding, '\0');
}

TEST(WekaSessions, OfAnArchiveEqualTheSameSessionsAsLines) {
  const TempFolder folder;
  const std::string second = R"({"block_size":64,"requests":[
    {"t":0.25,"type":"n","in":64,"out":1,"hash_ids":[1]}]})";
  const std::string first = R"({"block_size":64,"requests":[
    {"t":0.0,"type":"n","in":130,"out":5,"hash_ids":[1,2]},
    {"t":80,"type":"subagent","requests":[
      {"t":10.5,"type":"s","in":200,"out":5,"hash_ids":[1,2,7]}]}]})";
  // The archive's order is not that of the names.
  const std::string archive = tar_member("traces/", "", '5') +
                              tar_member("traces/trace_0002.json", second) +
                              tar_member("traces/trace_0001.json", first) + std::string(1024, '\0');
  const Trace trace = read_well(folder.file("trace", xz(archive)));
  const Trace lines = read_well(folder.file("lines", kWeka));
  EXPECT_EQ(trace.format, "weka-sessions");
  EXPECT_EQ(trace.block_tokens, 64U);
  EXPECT_EQ(times(trace), times(lines));
  EXPECT_EQ(prompts(trace), prompts(lines));

  const std::string damaged =
      tar_member("a.json", "{") + tar_member("b.json", first) + std::string(1024, '\0');
  const Trace rest = read_well(folder.file("damaged", damaged));
  EXPECT_EQ(rest.broken_lines, 1U);
  EXPECT_EQ(rest.first_broken_reason, "a.json: no JSON object");
  EXPECT_EQ(rest.requests.size(), 2U);

  Trace none;
  const auto cut = read_trace(folder.file("cut", archive.substr(0, 700)), {}, none);
  EXPECT_EQ(cut.error().code, ErrorCode::corrupt);
}

TEST(Azure, GivesArrivalsAndSizes) {
  const TempFolder folder;
  const Trace trace = read_well(folder.file("trace", R"(TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-30 23:59:59.9799600,4808,10
2023-12-01 00:00:01.02,3180,8
yesterday,1,2
2023-13-01 00:00:00,1,2
)"));
  EXPECT_EQ(trace.format, "azure");
  EXPECT_EQ(times(trace), (std::vector<std::uint64_t>{0, 1'041}));
  EXPECT_EQ(trace.requests[0].input_tokens, 4808U);
  EXPECT_EQ(trace.requests[1].output_tokens, 8U);
  EXPECT_EQ(trace.unique_blocks(), 0U);
  EXPECT_EQ(trace.broken_lines, 2U);
  EXPECT_EQ(trace.first_broken_line, 4U);
}

void write_lengths(const TempFolder& folder) {
  static_cast<void>(folder.file("1_sys_prompt.jsonl", R"({"sys_prompt_id":1,"token_length":100})"));
  static_cast<void>(
      folder.file("2_passages.jsonl.gz", gzip("{\"passage_id\":2,\"token_length\":20}\n"
                                              "{\"passage_id\":3,\"token_length\":30}\n")));
  static_cast<void>(folder.file("3_history.jsonl", R"({"history_id":4,"token_length":4})"));
  static_cast<void>(folder.file("4_user_input.jsonl", R"({"user_input_id":5,"token_length":5})"));
  static_cast<void>(folder.file("5_web_search.jsonl", R"({"web_search_id":6,"token_length":6})"));
}

TEST(Ragpulse, IdsAreChainedAndHaveTheirOwnLengths) {
  const TempFolder folder;
  write_lengths(folder);
  const auto line = [](const char* time, int input, const std::string& ids) {
    return "{\"timestamp\": \"" + std::string(time) +
           "\", \"input_length\": " + std::to_string(input) +
           ", \"output_length\": 1, \"hash_ids\": {" + ids + "}}\n";
  };
  const std::string path = folder.file(
      "0_trace.jsonl",
      line("20", 155,
           R"("sys_prompt": [1], "passages_ids": [3, 2], "history": [], "user_input": [5])") +
          line("10", 155, R"("user_input": [5], "sys_prompt": [1], "passages_ids": [2, 3])") +
          line("30", 120, R"("sys_prompt": [1], "passages_ids": [2])") +
          line("40", 1, R"("sys_prompt": [99])"));
  const Trace trace = read_well(path);
  EXPECT_EQ(trace.format, "ragpulse");
  EXPECT_EQ(times(trace), (std::vector<std::uint64_t>{0, 10'000, 20'000}));
  // A passage after another one is another block; order of categories is fixed.
  EXPECT_EQ(prompts(trace), (std::vector<Blocks>{{0, 1, 2, 3}, {0, 4, 5, 6}, {0, 1}}));
  EXPECT_EQ(trace.tokens_of(trace.requests[0], 3), 150U);
  EXPECT_EQ(trace.tokens_of(trace.requests[1], 2), 130U);
  EXPECT_EQ(ceiling_of(trace).block_hits, 3U);
  EXPECT_EQ(ceiling_of(trace).token_hits, 220U);
  EXPECT_EQ(trace.broken_lines, 1U);
}

TEST(Ragpulse, SaysThatItsLengthsAreMissing) {
  const TempFolder folder;
  Trace trace;
  const auto done = read_trace(
      folder.file("0_trace.jsonl", R"({"timestamp":"1","input_length":1,"hash_ids":{}})"), {},
      trace);
  EXPECT_EQ(done.error().code, ErrorCode::not_found);
}

TEST(Formats, OfUnknownFilesAreAsked) {
  const TempFolder folder;
  Trace trace;
  EXPECT_EQ(read_trace(folder.file("a", "hello\n"), {}, trace).error().code, ErrorCode::invalid);
  EXPECT_EQ(read_trace(folder.file("b", ""), {}, trace).error().code, ErrorCode::invalid);
  ReadOptions options;
  options.format = "mooncake";
  EXPECT_EQ(read_well(folder.file("c", "hello\n"), options).broken_lines, 1U);
}

TEST(NumberTable, FindsWhatWasPutInAsItGrows) {
  NumberTable table;
  for (std::uint64_t key = 0; key < 50'000; ++key) {
    ASSERT_EQ(table.find(key << 20U), NumberTable::kAbsent);
    table.insert(key << 20U, static_cast<std::uint32_t>(key));
  }
  EXPECT_EQ(table.size(), 50'000U);
  for (std::uint64_t key = 0; key < 50'000; ++key) ASSERT_EQ(table.find(key << 20U), key);
}

}  // namespace
}  // namespace kv::cachesim
