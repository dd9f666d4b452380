// Tests the contract of FileSystem with both implementations: the operating system's files, and the
// in-memory disk used for fault injection.

#include "torchps/storage/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Kind { kPosix, kMemory };

class FileSystemTest : public ::testing::TestWithParam<Kind> {
 protected:
  FileSystemTest() {
    if (GetParam() == Kind::kPosix) {
      files_ = MakePosixFileSystem();
      root_ = absl::StrCat(::testing::TempDir(), "/file_system_test.",
                           ::testing::UnitTest::GetInstance()->random_seed(), ".", getpid(), ".",
                           ++count_);
    } else {
      files_ = std::make_unique<FaultyFileSystem>();
      root_ = "/disk";
    }
    EXPECT_EQ(files_->CreateDirectories(root_), absl::OkStatus());
  }

  std::string Path(const std::string& name) const { return absl::StrCat(root_, "/", name); }

  std::string Contents(const std::string& name) {
    const absl::StatusOr<std::string> contents = ReadWholeFile(*files_, Path(name), 1 << 20);
    return contents.ok() ? *contents : contents.status().ToString();
  }

  static int count_;
  std::unique_ptr<FileSystem> files_;
  std::string root_;
};

int FileSystemTest::count_ = 0;

TEST_P(FileSystemTest, ReadsWhatItWrote) {
  auto file = files_->CreateFile(Path("a"));
  ASSERT_EQ(file.status(), absl::OkStatus());
  ASSERT_EQ((*file)->Append("hello, "), absl::OkStatus());
  ASSERT_EQ((*file)->Append("world"), absl::OkStatus());
  EXPECT_EQ((*file)->size(), 12);
  ASSERT_EQ((*file)->WriteAt(7, "WO"), absl::OkStatus());
  ASSERT_EQ((*file)->Sync(), absl::OkStatus());
  ASSERT_EQ((*file)->Close(), absl::OkStatus());
  EXPECT_EQ(Contents("a"), "hello, WOrld");

  const auto read = files_->OpenForReading(Path("a"));
  ASSERT_EQ(read.status(), absl::OkStatus());
  EXPECT_EQ((*read)->size(), 12);
  std::string part(2, ' ');
  ASSERT_EQ((*read)->ReadAt(7, absl::MakeSpan(&part[0], 2)), absl::OkStatus());
  EXPECT_EQ(part, "WO");
  const absl::Status beyond = (*read)->ReadAt(11, absl::MakeSpan(&part[0], 2));
  EXPECT_EQ(beyond.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr("a ends after 12 bytes; expected at least 13"));
}

TEST_P(FileSystemTest, AppendsAndTruncates) {
  ASSERT_EQ(WriteFileAtomically(*files_, Path("log"), "one two thr"), absl::OkStatus());
  auto file = files_->OpenForAppend(Path("log"));
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_EQ((*file)->size(), 11);
  ASSERT_EQ((*file)->Truncate(8), absl::OkStatus());
  ASSERT_EQ((*file)->Append("three"), absl::OkStatus());
  EXPECT_EQ(Contents("log"), "one two three");
}

TEST_P(FileSystemTest, RefusesWritesBeyondTheEnd) {
  auto file = files_->CreateFile(Path("a"));
  ASSERT_EQ((*file)->Append("abc"), absl::OkStatus());
  EXPECT_EQ((*file)->WriteAt(2, "xy").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->WriteAt(-1, "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->Truncate(4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Contents("a"), "abc");
}

TEST_P(FileSystemTest, CreateFileTruncates) {
  ASSERT_EQ(WriteFileAtomically(*files_, Path("a"), "long contents"), absl::OkStatus());
  auto file = files_->CreateFile(Path("a"));
  ASSERT_EQ((*file)->Append("short"), absl::OkStatus());
  EXPECT_EQ(Contents("a"), "short");
}

TEST_P(FileSystemTest, AnAtomicWriteLeavesNoOtherFile) {
  ASSERT_EQ(WriteFileAtomically(*files_, Path("a"), "first"), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*files_, Path("a"), "second"), absl::OkStatus());
  EXPECT_EQ(Contents("a"), "second");
  const auto names = files_->List(root_);
  ASSERT_EQ(names.status(), absl::OkStatus());
  EXPECT_THAT(*names, ElementsAre("a"));
}

TEST_P(FileSystemTest, CreatesListsAndRemovesNames) {
  ASSERT_EQ(files_->CreateDirectories(Path("x/y/z")), absl::OkStatus());
  ASSERT_EQ(files_->CreateDirectories(Path("x/y")), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*files_, Path("x/b"), "1"), absl::OkStatus());
  EXPECT_THAT(*files_->List(Path("x")), ElementsAre("b", "y"));
  EXPECT_EQ(files_->RemoveDirectory(Path("x")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(files_->RemoveDirectory(Path("x/y/z")), absl::OkStatus());
  EXPECT_EQ(files_->RemoveDirectory(Path("x/y")), absl::OkStatus());
  EXPECT_EQ(files_->Rename(Path("x/b"), Path("x/c")), absl::OkStatus());
  EXPECT_THAT(*files_->List(Path("x")), ElementsAre("c"));
  EXPECT_EQ(files_->RemoveFile(Path("x/c")), absl::OkStatus());
  EXPECT_EQ(files_->SyncDirectory(Path("x")), absl::OkStatus());
  EXPECT_EQ(files_->RemoveDirectory(Path("x")), absl::OkStatus());
  EXPECT_THAT(*files_->List(root_), ElementsAre());
}

TEST_P(FileSystemTest, ErrorNamesAMissingFile) {
  const auto expect_named = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
  };
  expect_named(files_->OpenForReading(Path("nowhere")).status());
  expect_named(files_->OpenForAppend(Path("nowhere")).status());
  expect_named(files_->CreateFile(Path("nowhere/a")).status());
  expect_named(files_->RemoveFile(Path("nowhere")));
  expect_named(files_->RemoveDirectory(Path("nowhere")));
  expect_named(files_->Rename(Path("nowhere"), Path("b")));
  expect_named(files_->List(Path("nowhere")).status());
  expect_named(files_->SyncDirectory(Path("nowhere")));
  expect_named(files_->Lock(Path("nowhere/lock")).status());
}

TEST_P(FileSystemTest, ErrorNamesAFileInPlaceOfADirectory) {
  ASSERT_EQ(WriteFileAtomically(*files_, Path("a"), ""), absl::OkStatus());
  const absl::Status status = files_->CreateDirectories(Path("a"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a is a file; expected a directory"));
}

TEST_P(FileSystemTest, RefusesToReadATooLargeFile) {
  ASSERT_EQ(WriteFileAtomically(*files_, Path("a"), "12345"), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(*files_, Path("a"), 5).status(), absl::OkStatus());
  const absl::Status status = ReadWholeFile(*files_, Path("a"), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a has 5 bytes; expected 4 at most"));
}

TEST_P(FileSystemTest, ASecondLockOfAFileIsRefused) {
  auto lock = files_->Lock(Path("lock"));
  ASSERT_EQ(lock.status(), absl::OkStatus());
  const absl::Status second = files_->Lock(Path("lock")).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("lock is held by another process"));
  if (GetParam() == Kind::kPosix) {
    EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("number ", getpid(), ";")));
  }
  EXPECT_EQ(files_->Lock(Path("other")).status(), absl::OkStatus());
  lock->reset();
  EXPECT_EQ(files_->Lock(Path("lock")).status(), absl::OkStatus());
}

TEST_P(FileSystemTest, ReportsFreeBytes) {
  const auto free = files_->FreeBytes(root_);
  ASSERT_EQ(free.status(), absl::OkStatus());
  EXPECT_GT(*free, 0);
}

INSTANTIATE_TEST_SUITE_P(All, FileSystemTest, ::testing::Values(Kind::kPosix, Kind::kMemory),
                         [](const auto& info) {
                           return info.param == Kind::kPosix ? "Posix" : "Memory";
                         });

TEST(PosixFileSystemTest, RefusesAPipeWithoutBlocking) {
  const auto files = MakePosixFileSystem();
  const std::string path = absl::StrCat(::testing::TempDir(), "/pipe.", getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const absl::Status& status :
       {files->OpenForReading(path).status(), files->CreateFile(path).status(),
        files->Lock(path).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not a regular file"));
  }
  unlink(path.c_str());
}

TEST(PosixFileSystemTest, AppendsWithoutAGapAfterAFailedWrite) {
  // The write runs in a child process, because its file size limit stands for the full disk.
  const std::string path = absl::StrCat(::testing::TempDir(), "/limited.", getpid());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const auto files = MakePosixFileSystem();
    auto file = files->CreateFile(path);
    rlimit limit = {10, 1000};
    if (!file.ok() || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    if (!(*file)->Append("12345678").ok()) _exit(2);
    const absl::Status status = (*file)->Append("abcdefgh");
    if (status.code() != absl::StatusCode::kResourceExhausted) _exit(3);
    if ((*file)->size() != 8) _exit(4);
    limit = {1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(5);
    if (!(*file)->Append("ABCDEFGH").ok()) _exit(6);
    _exit(0);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_EQ(WEXITSTATUS(result), 0);
  const auto files = MakePosixFileSystem();
  EXPECT_EQ(*ReadWholeFile(*files, path, 100), "12345678ABCDEFGH");
}

TEST(PosixFileSystemTest, CreateDirectoriesFailsUntilTheParentIsSynced) {
  const auto files = MakePosixFileSystem();
  const std::string path = absl::StrCat(::testing::TempDir(), "/unsynced.", getpid());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // mkdir does not need a descriptor, but syncing the parent does.
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status first = files->CreateDirectories(path);
  struct stat made;
  const bool is_made = stat(path.c_str(), &made) == 0;
  const absl::Status second = files->CreateDirectories(path);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(first.code(), absl::StatusCode::kResourceExhausted) << first;
  EXPECT_TRUE(is_made);
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted) << second;
  EXPECT_EQ(files->CreateDirectories(path), absl::OkStatus());
}

// Returns the last nine bits of a mode, or -1.
int GetMode(const std::string& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0 ? static_cast<int>(file.st_mode & 0777) : -1;
}

TEST(PosixFileSystemTest, NewFilesHonorTheUmask) {
  const std::string root = absl::StrCat(::testing::TempDir(), "/readers.", getpid());
  const auto files = MakePosixFileSystem();
  const mode_t umask_before = umask(0);
  for (const mode_t mask : {0, 022, 077}) {
    const std::string directory = absl::StrCat(root, "/", mask);
    umask(mask);
    ASSERT_EQ(files->CreateDirectories(directory), absl::OkStatus());
    EXPECT_EQ(GetMode(directory), 0777 & ~mask);
    ASSERT_EQ(WriteFileAtomically(*files, directory + "/file", "x"), absl::OkStatus());
    EXPECT_EQ(GetMode(directory + "/file"), 0666 & ~mask);
    ASSERT_EQ(files->Lock(directory + "/lock").status(), absl::OkStatus());
    EXPECT_EQ(GetMode(directory + "/lock"), 0666 & ~mask);
  }
  umask(umask_before);
  // An existing file or directory keeps the mode.
  ASSERT_EQ(chmod((root + "/0").c_str(), 0750), 0);
  ASSERT_EQ(chmod((root + "/0/file").c_str(), 0640), 0);
  EXPECT_EQ(files->CreateDirectories(root + "/0"), absl::OkStatus());
  EXPECT_EQ(files->CreateFile(root + "/0/file").status(), absl::OkStatus());
  EXPECT_EQ(GetMode(root + "/0"), 0750);
  EXPECT_EQ(GetMode(root + "/0/file"), 0640);
}

TEST(FileErrorTest, MapsErrorsToCodes) {
  const auto code = [](FileAction action, int error) {
    return FileError(action, "do it to", "x", error).code();
  };
  EXPECT_EQ(code(FileAction::kWrite, ENOSPC), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(FileAction::kWrite, EDQUOT), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(FileAction::kWrite, EIO), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(FileAction::kRead, EIO), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(FileAction::kWrite, EROFS), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(FileAction::kWrite, EACCES), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(FileError(FileAction::kWrite, "write", "DIR/x", ENOSPC).message(),
            "cannot write DIR/x: No space left on device");
}

}  // namespace
}  // namespace torchps
