// Moving bytes: both ways do the same, many requests at once, short results to their end.
#include "tiering/stores/file_io.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/tiering/stores/fault_io.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/aligned_buffer.h"
#include "tiering/stores/disk_directory.h"
#include "tiering/stores/file_descriptor.h"
#include "tiering/stores/file_error.h"
#include "tiering/stores/io_choice.h"
#include "tiering/stores/io_pipeline.h"
#include "tiering/stores/ring_io.h"
#include "tiering/stores/slab_files.h"
#include "tiering/stores/slot_io.h"

namespace kv {
namespace {

constexpr std::uint32_t kDepth = 8;

FileDescriptor open_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_TRUE(file.is_open()) << path;
  return file;
}
std::vector<std::byte> random_bytes(std::size_t count) {
  Prng prng(count);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}
// Moves all pages of `bytes`; gives each page's error.
std::vector<int> move_pages(FileIo& io, FileRequest::Kind kind, int descriptor,
                            std::span<std::byte> bytes) {
  std::vector<int> errors(bytes.size() / kPage, 12345);
  std::set<std::uint32_t> lanes_in_use;
  run_jobs(io, kDepth,
           {.count = errors.size(),
            .prepare = [&](std::size_t job, std::uint32_t lane) -> std::optional<FileRequest> {
              EXPECT_TRUE(lanes_in_use.insert(lane).second) << "lane " << lane << " is in use";
              return FileRequest{.kind = kind,
                                 .descriptor = descriptor,
                                 .offset = job * kPage,
                                 .bytes = bytes.subspan(job * kPage, kPage)};
            },
            .finish =
                [&](std::size_t job, std::uint32_t lane, int error) {
                  EXPECT_EQ(lanes_in_use.erase(lane), 1U);
                  errors[job] = error;
                }});
  EXPECT_TRUE(lanes_in_use.empty());
  return errors;
}

class FileIoKinds : public testing::TestWithParam<bool> {
 protected:
  // Null, with the reason, where io_uring is refused.
  std::unique_ptr<FileIo> make() {
    if (!GetParam()) return make_plain_io();
    Result<std::unique_ptr<FileIo>> ring = make_ring_io(kDepth);
    if (ring) return std::move(ring).value();
    reason_ = ring.error().reason;
    return nullptr;
  }
  std::string reason_;
  TempDirectory directory_;
};

TEST_P(FileIoKinds, MovesManyPagesAtOnce) {
  const std::unique_ptr<FileIo> io = make();
  if (io == nullptr) GTEST_SKIP() << "not on this machine: " << reason_;
  const FileDescriptor file = open_file(directory_ / "pages");
  std::vector<std::byte> bytes = random_bytes(100 * kPage);
  const std::vector<std::byte> expected = bytes;
  const std::vector<int> ok(100, 0);
  EXPECT_EQ(move_pages(*io, FileRequest::Kind::write, file.get(), bytes), ok);
  EXPECT_EQ(bytes, expected) << "a write only reads";
  EXPECT_EQ(io->flush(file.get()), 0);
  std::vector<std::byte> back(bytes.size());
  EXPECT_EQ(move_pages(*io, FileRequest::Kind::read, file.get(), back), ok);
  EXPECT_EQ(back, expected);
}

TEST_P(FileIoKinds, ReadsBeyondTheEndAndBadDescriptorsAreErrorsOfTheirOwn) {
  const std::unique_ptr<FileIo> io = make();
  if (io == nullptr) GTEST_SKIP() << "not on this machine: " << reason_;
  const FileDescriptor file = open_file(directory_ / "short");
  std::vector<std::byte> bytes = random_bytes(3 * kPage);
  move_pages(*io, FileRequest::Kind::write, file.get(), std::span(bytes).first(2 * kPage));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(kPage + 100)), 0);
  const std::vector<int> expected = {0, kEndOfFileError, kEndOfFileError};
  EXPECT_EQ(move_pages(*io, FileRequest::Kind::read, file.get(), bytes), expected);
  EXPECT_EQ(move_pages(*io, FileRequest::Kind::read, -1, bytes), (std::vector<int>(3, EBADF)));
  EXPECT_EQ(io->flush(-1), EBADF);
}

TEST_P(FileIoKinds, ReservesRoomAndNeverShortens) {
  const std::unique_ptr<FileIo> io = make();
  if (io == nullptr) GTEST_SKIP() << "not on this machine: " << reason_;
  const FileDescriptor file = open_file(directory_ / "room");
  EXPECT_EQ(io->reserve(file.get(), 1 << 20), 0);
  EXPECT_EQ(std::filesystem::file_size(directory_ / "room"), 1U << 20U);
  EXPECT_EQ(io->reserve(file.get(), 100), 0);
  EXPECT_EQ(std::filesystem::file_size(directory_ / "room"), 1U << 20U);
  EXPECT_EQ(io->reserve(-1, 100), EBADF);
}

TEST_P(FileIoKinds, ShortMovesEndWholeAndJobsWithoutRequestsAreLeftOut) {
  std::unique_ptr<FileIo> inner = make();
  if (inner == nullptr) GTEST_SKIP() << "not on this machine: " << reason_;
  FaultPlan plan;
  FaultIo io(std::move(inner), plan);
  const FileDescriptor file = open_file(directory_ / "whole");
  std::vector<std::byte> bytes = random_bytes(20 * kPage);
  // Uneven pieces: the part of a page that was moved last is moved again.
  plan.request_fault = [](std::uint64_t, const FileRequest&) { return 3 * 4096 + 17; };
  std::vector<int> errors;
  for (const FileRequest::Kind kind : {FileRequest::Kind::write, FileRequest::Kind::read}) {
    run_jobs(io, kDepth,
             {.count = 3,
              .prepare = [&](std::size_t job, std::uint32_t) -> std::optional<FileRequest> {
                if (job == 1) return {};
                return FileRequest{
                    .kind = kind,
                    .descriptor = file.get(),
                    .offset = job * 10 * kPage,
                    .bytes = std::span(bytes).subspan(job / 2 * 10 * kPage, 10 * kPage)};
              },
              .finish = [&](std::size_t job, std::uint32_t,
                            int error) { errors.push_back(job == 1 ? -2 : error); }});
  }
  EXPECT_EQ(errors, std::vector<int>(4, 0));
  EXPECT_EQ(plan.requests, 16U);  // 4 transfers of 3 + 3 + 3 + 1 pages
  EXPECT_EQ(bytes, random_bytes(20 * kPage));
}

INSTANTIATE_TEST_SUITE_P(Kinds, FileIoKinds, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& parameters) {
                           return parameters.param ? "IoUring" : "Plain";
                         });

TEST(RingIo, RefusesAnAbsurdDepthInsteadOfFailingLater) {
  EXPECT_FALSE(make_ring_io(0).has_value());
  EXPECT_FALSE(make_ring_io(1U << 30U).has_value());
}

// From here on this process may not use rings: as a filter that comes late.
void refuse_rings() {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    std::_Exit(2);
  }
}

// Four requests are with the kernel when it begins to refuse, two are not. Exit code 7: the four
// are whole, the two failed, and later ones are whole.
int read_while_rings_become_refused(FileIo& io, int descriptor, std::span<std::byte> expected) {
  std::vector<std::byte> bytes(8 * kPage);
  const auto submit = [&](std::uint32_t lane) {
    io.submit(lane, {.kind = FileRequest::Kind::read,
                     .descriptor = descriptor,
                     .offset = lane * kPage,
                     .bytes = std::span(bytes).subspan(lane * kPage, kPage)});
  };
  for (std::uint32_t lane = 0; lane < 4; ++lane) submit(lane);
  refuse_rings();
  for (std::uint32_t lane = 4; lane < 6; ++lane) submit(lane);
  std::vector<std::int64_t> results(8, 0);
  for (int i = 0; i < 6; ++i) {
    const FileCompletion completion = io.wait();
    results[completion.lane] = completion.result;
  }
  for (std::uint32_t lane = 6; lane < 8; ++lane) submit(lane);
  for (int i = 0; i < 2; ++i) {
    const FileCompletion completion = io.wait();
    results[completion.lane] = completion.result;
  }
  for (std::size_t lane = 0; lane < 8; ++lane) {
    const bool refused = lane == 4 || lane == 5;
    if (results[lane] != (refused ? -EIO : std::int64_t{kPage})) return static_cast<int>(10 + lane);
    const std::size_t at = lane * kPage;
    if (!refused && !std::equal(&bytes[at], &bytes[at] + kPage, &expected[at])) return 3;
  }
  return 7;
}

TEST(RingIoDeathTest, ARingThatTheKernelRefusesLaterOnCostsWhatItHadNotBegun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!make_ring_io(kDepth)) GTEST_SKIP() << "no io_uring here";
  const auto read_and_exit = [] {
    const TempDirectory directory;
    const FileDescriptor file = open_file(directory / "file");
    std::vector<std::byte> expected = random_bytes(8 * kPage);
    if (::pwrite(file.get(), expected.data(), expected.size(), 0) != 8 * kPage) std::_Exit(1);
    const std::unique_ptr<FileIo> io = std::move(*make_ring_io(kDepth));
    std::_Exit(read_while_rings_become_refused(*io, file.get(), expected));
  };
  EXPECT_EXIT(read_and_exit(), testing::ExitedWithCode(7), "");
}

TEST(IoChoice, FallsBackToPlainAndGivesTheReasonUnlessDirectIsDemanded) {
  const std::string nowhere = "/nowhere/at/all";
  const Result<ChosenIo> automatic = choose_io(DiskStore::Io::automatic, kDepth, nowhere);
  ASSERT_TRUE(automatic.has_value());
  EXPECT_FALSE(automatic->direct);
  EXPECT_FALSE(automatic->plain_reason.empty());
  const Result<ChosenIo> demanded = choose_io(DiskStore::Io::io_uring_direct, kDepth, nowhere);
  ASSERT_FALSE(demanded.has_value());
  EXPECT_EQ(demanded.error().reason, automatic->plain_reason);
}

TEST(AlignedBuffer, LiesOnAPageBoundary) {
  const AlignedBuffer buffer(3 * kPage);
  EXPECT_EQ(buffer.bytes().size(), 3 * kPage);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % kDiskUnitBytes, 0U);
  EXPECT_TRUE(AlignedBuffer().bytes().empty());
}

TEST(FileDescriptor, ClosesWhatItOwnsAndOnlyThat) {
  const TempDirectory directory;
  FileDescriptor first = open_file(directory / "a");
  const int number = first.get();
  FileDescriptor second = std::move(first);
  EXPECT_EQ(second.get(), number);
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
  second.reset();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  EXPECT_FALSE(second.is_open());
  FileDescriptor third = open_file(directory / "b");
  const int released = third.release();
  EXPECT_FALSE(third.is_open());
  EXPECT_EQ(::close(released), 0);
}

TEST(FileError, OnlyAFullDiskIsExhausted) {
  EXPECT_EQ(file_error(ENOSPC, "x").code, ErrorCode::exhausted);
  EXPECT_EQ(file_error(EDQUOT, "x").code, ErrorCode::exhausted);
  EXPECT_EQ(file_error(EIO, "x").code, ErrorCode::unavailable);
  EXPECT_EQ(file_error(EACCES, "why").reason, "why");
}

TEST(DiskDirectory, ThatCannotBeMadeIsUnavailable) {
  const TempDirectory directory;
  open_file(directory / "file");
  const Result<DiskDirectory> opened = DiskDirectory::open(directory / "file/store");
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
}

TEST(SlabFiles, PutsEachSlotInItsFileAtItsOffset) {
  const TempDirectory directory;
  const std::unique_ptr<FileIo> io = make_plain_io();
  SlabFiles files({.directory = directory / "",
                   .direct = false,
                   .slab_bytes = 10 * kPage,
                   .budget_bytes = 90 * kPage,  // of blocks of 7 pages
                   .slot_bytes = {2 * kPage, 5 * kPage}},
                  *io);
  EXPECT_EQ(files.slot_count(GroupId(0)), 12U);
  EXPECT_EQ(files.slot_count(GroupId(1)), 12U);
  EXPECT_EQ(files.slot_count(GroupId(2)), 0U);
  const auto missing = files.place_to_read(GroupId(0), SlotId(7));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  const auto place = files.place_to_write(GroupId(0), SlotId(7));  // file 1, its slot 2
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->offset, 4 * kPage);
  EXPECT_TRUE(std::filesystem::exists(directory / "slab.0.1"));
  EXPECT_FALSE(std::filesystem::exists(directory / "slab.0.0"));
  EXPECT_EQ(files.place_to_read(GroupId(0), SlotId(8))->offset, 6 * kPage);
  ASSERT_TRUE(files.place_to_write(GroupId(1), SlotId(4)).has_value());  // file 2, its slot 0
  EXPECT_EQ(std::filesystem::file_size(directory / "slab.1.2"), 10 * kPage);
  EXPECT_TRUE(files.flush().has_value());
}

TEST(SlotIo, LeavesOutBlobsThatHaveAlreadyFailed) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  SlotIo slots({.directory = directory / "",
                .layout = layout,
                .budget_bytes = 8 * kPage,
                .slab_bytes = 8 * kPage,
                .queue_depth = 2},
               make_plain_io());
  const std::vector<TestBlock> blocks = make_blocks(layout, 3);
  const std::vector<BlobWrite> writes = {blocks[0].to_write(), blocks[1].to_write(),
                                         blocks[2].to_write()};
  std::vector<ErrorCode> outcomes = {ErrorCode::ok, ErrorCode::exhausted, ErrorCode::ok};
  const std::vector<ErrorCode> expected = outcomes;
  slots.write(writes, outcomes);
  EXPECT_EQ(outcomes, expected);
  std::vector<std::byte> payload(kPage);
  for (const TestBlock& block : blocks) {
    const BlobRead read = {.identity = block.identity, .payload = payload};
    ErrorCode outcome = ErrorCode::ok;
    slots.read({&read, 1}, {&outcome, 1});
    EXPECT_EQ(outcome, &block == &blocks[1] ? ErrorCode::corrupt : ErrorCode::ok);
  }
}

}  // namespace
}  // namespace kv
