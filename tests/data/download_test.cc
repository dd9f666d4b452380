#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/http_server.h"
#include "tests/data/test_files.h"
#include "torchps/data/download_mnist.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The example from FIPS 180-2.
const RemoteFile kAbc{"abc.bin", 3,
                      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"};

class DownloadTest : public ::testing::Test {
 protected:
  // Otherwise a proxy that the test machine is configured for would answer instead of the test's
  // servers.
  void SetUp() override { setenv("no_proxy", "127.0.0.1", 1); }

  absl::Status Download(const std::vector<std::string>& mirrors,
                        const std::vector<RemoteFile>& files = {kAbc}) {
    DownloadOptions options;
    options.mirrors = mirrors;
    options.log = [this](const std::string& line) { log_.push_back(line); };
    return DownloadFiles(directory_, files, options);
  }

  std::vector<std::string> FileNames() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::string Contents(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const std::string directory_ = NewDirectory() + "/made/below";
  std::vector<std::string> log_;
  HttpServer good_{[](const std::string&) { return HttpAnswer("200 OK", "abc"); }};
};

TEST_F(DownloadTest, DownloadsAFileWithTheRightChecksum) {
  const absl::Status status = Download({good_.url() + "/mirror"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FileNames(), ElementsAre("abc.bin"));
  EXPECT_EQ(Contents("abc.bin"), "abc");
  EXPECT_THAT(good_.requests(), ElementsAre("/mirror/abc.bin"));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("fetched")));
}

TEST_F(DownloadTest, DoesNotDownloadAnExistingFile) {
  ASSERT_TRUE(Download({good_.url()}).ok());
  ASSERT_TRUE(Download({good_.url()}).ok());
  EXPECT_EQ(good_.requests().size(), 1u);
}

TEST_F(DownloadTest, ConcurrentDownloadsFetchOnce) {
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(4);
  for (absl::Status& status : statuses) {
    threads.emplace_back([this, &status] {
      DownloadOptions options;
      options.mirrors = {good_.url()};
      status = DownloadFiles(directory_, {kAbc}, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(good_.requests().size(), 1u);
  EXPECT_THAT(FileNames(), ElementsAre("abc.bin"));
}

TEST_F(DownloadTest, AStopEndsTheDownload) {
  // This mirror accepts the connection and never answers.
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent, 1), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  DownloadOptions options;
  options.mirrors = {"http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), good_.url()};
  options.is_stopped = [] { return true; };
  const absl::Status status = DownloadFiles(directory_, {kAbc}, options);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(good_.requests(), IsEmpty());
  EXPECT_THAT(FileNames(), IsEmpty());
  close(silent);
}

TEST_F(DownloadTest, DoesNotOverwriteADifferentFileOfThatName) {
  ASSERT_TRUE(std::filesystem::create_directories(directory_));
  WriteFile(directory_, "abc.bin", "mine");
  const absl::Status status = Download({good_.url()});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(kAbc.sha256));
  EXPECT_EQ(Contents("abc.bin"), "mine");
  EXPECT_THAT(good_.requests(), IsEmpty());
}

TEST_F(DownloadTest, RejectsAnAnswerWithTheWrongBytes) {
  for (const std::string body : {"abd", "", "ab", "abcd"}) {
    HttpServer bad([&body](const std::string&) { return HttpAnswer("200 OK", body); });
    const absl::Status status = Download({bad.url()});
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("expected 3 bytes"), HasSubstr(bad.url()), HasSubstr("by hand")));
    EXPECT_THAT(FileNames(), IsEmpty());
  }
}

TEST_F(DownloadTest, ATruncatedAnswerIsUnavailable) {
  HttpServer cut([](const std::string&) {
    const std::string whole = HttpAnswer("200 OK", "abc");
    return whole.substr(0, whole.size() - 1);
  });
  EXPECT_TRUE(absl::IsUnavailable(Download({cut.url()})));
  EXPECT_THAT(FileNames(), IsEmpty());
}

TEST_F(DownloadTest, LimitsTheSizeOfAnAnswer) {
  HttpServer endless([](const std::string&) {
    return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + std::string(64 << 20, 'x');
  });
  const absl::Status status = Download({endless.url()});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected 3 bytes, got more"));
  EXPECT_THAT(FileNames(), IsEmpty());
}

TEST_F(DownloadTest, TriesTheNextMirrorAfterAnyFailure) {
  HttpServer missing(
      [](const std::string&) { return HttpAnswer("404 Not Found", "no such file"); });
  HttpServer wrong([](const std::string&) { return HttpAnswer("200 OK", "xyz"); });
  const DeadEnd dead;
  const absl::Status status = Download({missing.url(), wrong.url(), dead.url(), good_.url()});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Contents("abc.bin"), "abc");
  EXPECT_EQ(log_.size(), 4u);
}

TEST_F(DownloadTest, ListsTheErrorOfEachMirror) {
  HttpServer missing(
      [](const std::string&) { return HttpAnswer("404 Not Found", "no such file"); });
  const DeadEnd dead;
  const absl::Status status = Download({missing.url(), dead.url()});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(missing.url()), HasSubstr("404"), HasSubstr(dead.url()),
                    HasSubstr("by hand"), HasSubstr("--mirrors=URL"), HasSubstr(directory_)));
  EXPECT_THAT(FileNames(), IsEmpty());
}

TEST_F(DownloadTest, FollowsRedirectionsExceptToFiles) {
  const std::string secret = WriteFile(NewDirectory(), "secret", "abc");
  HttpServer to_file([&secret](const std::string&) {
    return "HTTP/1.1 302 Found\r\nLocation: file://" + secret +
           "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  });
  EXPECT_TRUE(absl::IsUnavailable(Download({to_file.url()})));
  HttpServer to_good([this](const std::string&) {
    return "HTTP/1.1 302 Found\r\nLocation: " + good_.url() +
           "/elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  });
  EXPECT_TRUE(Download({to_good.url()}).ok());
}

TEST_F(DownloadTest, FailsWithoutAMirrorOrADirectory) {
  EXPECT_TRUE(absl::IsInvalidArgument(Download({})));
  DownloadOptions options;
  options.mirrors = {good_.url()};
  const std::string file = WriteFile(NewDirectory(), "file", "");
  EXPECT_FALSE(DownloadFiles(file + "/below", {kAbc}, options).ok());
}

TEST(MnistDownloadTest, ListsTheFilesThatTheIdxReaderReads) {
  std::vector<std::string> names;
  for (const RemoteFile& file : MnistFiles()) {
    names.push_back(file.name);
    EXPECT_EQ(file.sha256.size(), 64u);
    EXPECT_GT(file.bytes, 0);
  }
  EXPECT_THAT(names, ElementsAre("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                 "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"));
}

TEST(MnistDownloadTest, WithoutAPathMnistGoesToTheCacheFolder) {
  setenv("no_proxy", "127.0.0.1", 1);
  const std::string cache = NewDirectory();
  setenv("TORCHPS_CACHE", cache.c_str(), 1);
  HttpServer missing([](const std::string&) { return HttpAnswer("404 Not Found", ""); });
  DownloadOptions options;
  options.mirrors = {missing.url()};
  const absl::Status cached = DownloadForJob("idx", "", options).status();
  EXPECT_TRUE(absl::IsUnavailable(cached)) << cached;
  EXPECT_THAT(std::string(cached.message()), HasSubstr(cache + "/mnist by hand"));
  const std::string own = NewDirectory();
  EXPECT_THAT(std::string(DownloadForJob("idx", own, options).status().message()),
              HasSubstr(own + " by hand"));
  const absl::Status other = DownloadForJob("csv", own, options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("data.source \"idx\", not \"csv\""));
}

TEST(MnistDownloadTest, OnlyTheGivenMirrorsAreAsked) {
  setenv("no_proxy", "127.0.0.1", 1);
  HttpServer missing([](const std::string&) { return HttpAnswer("404 Not Found", ""); });
  DownloadOptions options;
  options.mirrors = {missing.url()};
  EXPECT_TRUE(absl::IsUnavailable(DownloadMnist(NewDirectory(), options)));
  EXPECT_THAT(missing.requests(), ElementsAre("/train-images-idx3-ubyte.gz"));
}

}  // namespace
}  // namespace torchps
