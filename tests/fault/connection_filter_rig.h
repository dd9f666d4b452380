#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/server/rpc/connection_filter.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Fixture with a filter that collects the admitted connections in a list.
class ConnectionFilterTest : public ::testing::Test {
 protected:
  void Open(ConnectionFilter::Options options = ConnectionFilter::Options()) {
    if (options.clock == nullptr) options.clock = &clock_;
    options.admit = [this](FileDescriptor connection) {
      MutexLock lock(&mutex_);
      admitted_.push_back(std::move(connection));
    };
    options.log = [this](const std::string& line) {
      MutexLock lock(&mutex_);
      logged_.push_back(line);
    };
    auto filter = ConnectionFilter::Create(std::move(options));
    ASSERT_TRUE(filter.ok()) << filter.status();
    filter_ = *std::move(filter);
    filter_->Open();
  }

  FileDescriptor Visit(absl::string_view bytes, const std::string& from = "") {
    auto socket = ConnectTcp(absl::StrCat("127.0.0.1:", filter_->port()), from);
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (!bytes.empty()) {
      EXPECT_TRUE(WriteAll(*socket, bytes).ok());
    }
    return *std::move(socket);
  }
  size_t admitted() {
    MutexLock lock(&mutex_);
    return admitted_.size();
  }
  // Returns the peer's address of an admitted connection.
  std::string GetPeer(size_t index) {
    MutexLock lock(&mutex_);
    return GetName(admitted_[index].get(), &getpeername);
  }
  void CloseAdmitted(size_t index) {
    MutexLock lock(&mutex_);
    admitted_[index].Close();
  }
  static std::string GetAddress(const FileDescriptor& visitor) {
    return GetName(visitor.get(), &getsockname);
  }
  static std::string GetName(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(get(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
    return absl::StrCat(host, ":", ntohs(address.sin_port));
  }
  // Returns a TLS handshake record with this many bytes after the header.
  static std::string GetRecord(size_t bytes) {
    std::string record("\x16\x03\x01", 3);
    record += {static_cast<char>(bytes >> 8), static_cast<char>(bytes & 0xff)};
    return record + std::string(bytes, 'x');
  }
  bool Logged(const std::string& words) {
    MutexLock lock(&mutex_);
    return std::any_of(logged_.begin(), logged_.end(),
                       [&](const std::string& line) { return absl::StrContains(line, words); });
  }

  SteadyClock clock_;
  ManualClock manual_clock_;  // for tests that advance the time
  Mutex mutex_;
  std::vector<FileDescriptor> admitted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> logged_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ConnectionFilter> filter_;
};

}  // namespace torchps
