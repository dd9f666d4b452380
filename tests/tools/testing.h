#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "torchps/common/process/version.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/report/report.h"

// Helpers for the tests of psctl.

namespace torchps {

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns testdata/report.json, whose version 1.2.3 is replaced with the current release.
inline std::string ExpectedReport() {
  return absl::StrReplaceAll(ReadWholeFile("tests/tools/testdata/report.json"),
                             {{"1.2.3", ReleaseVersion()}});
}

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// Reads a status message from testdata.
template <typename Message>
Message FromTestdata(const std::string& name) {
  return FromText<Message>(ReadWholeFile("tests/tools/testdata/" + name));
}

// Temporary folder for programs and files. The destructor removes it.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = testing::TempDir() + "/psctl_test_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  std::string WriteScript(const std::string& name, const std::string& text) const {
    WriteFile(name, "#!/bin/sh\n" + text);
    std::filesystem::permissions(path(name), std::filesystem::perms::owner_all);
    return path(name);
  }

 private:
  std::string path_;
};

// Answers like a cluster of two servers that runs the testdata job. The job status does not contain
// server addresses.
class FakeCluster final : public ClusterClient {
 public:
  FakeCluster() {
    job = FromTestdata<JobStatus>("job_status.textproto");
    servers = {FromTestdata<ServerStatus>("server_0.textproto"),
               FromTestdata<ServerStatus>("server_1.textproto")};
  }

  const std::vector<std::string>& addresses() const override { return named; }
  absl::StatusOr<JobStatus> GetJobStatus(bool wait_until_done, absl::Duration) override {
    ++(wait_until_done ? waits : looks);
    if (wait_until_done && !wait_answers.empty()) {
      const absl::Status answer = wait_answers.front();
      wait_answers.erase(wait_answers.begin());
      if (!answer.ok()) return answer;
    }
    return job;
  }
  absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration) override { return checkpoint; }
  absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration) override {
    return servers[server];
  }
  absl::Status Shutdown(int server, absl::string_view, absl::Duration) override {
    shut_down.push_back(server);
    return servers[server].status();
  }

  // Adds the servers' addresses to the job status, as workers report them.
  void ReportAddresses() {
    for (const char* address : {"127.0.0.1:4711", "127.0.0.1:4712"}) {
      job->add_server()->set_address(address);
    }
  }

  absl::StatusOr<JobStatus> job = absl::UnknownError("not set");
  absl::StatusOr<CheckpointStatus> checkpoint = absl::UnknownError("not set");
  std::vector<absl::StatusOr<ServerStatus>> servers;
  // Results of the next waiting requests for the job, in order. Later requests return `job`.
  std::vector<absl::Status> wait_answers;
  int waits = 0;
  int looks = 0;
  std::vector<int> shut_down;
  // Addresses in --servers, in the order of `servers`.
  std::vector<std::string> named = {"127.0.0.1:4711", "127.0.0.1:4712"};
};

}  // namespace torchps
