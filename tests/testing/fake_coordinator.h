#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/coordinator.grpc.pb.h"

namespace torchps {

// Simulates a coordinator that only answers calls about server addresses. Returns the answers that
// a test sets and records the registrations. Thread-safe.
class FakeCoordinator final : public Coordinator::Service {
 public:
  FakeCoordinator() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }

  // Sets the addresses of all servers.
  void Place(const std::vector<std::string>& addresses) {
    MutexLock lock(&mutex_);
    places_ = addresses;
  }
  // Sets the reply to later registrations.
  void Refuse(grpc::Status status) {
    MutexLock lock(&mutex_);
    refusal_ = std::move(status);
  }
  std::vector<RegisterServerRequest> registered() const {
    MutexLock lock(&mutex_);
    return registered_;
  }
  int asked() const {
    MutexLock lock(&mutex_);
    return asked_;
  }

  grpc::Status RegisterServer(grpc::ServerContext*, const RegisterServerRequest* request,
                              RegisterServerReply*) override {
    MutexLock lock(&mutex_);
    registered_.push_back(*request);
    return refusal_;
  }
  grpc::Status LocateServers(grpc::ServerContext*, const LocateServersRequest*,
                             LocateServersReply* reply) override {
    MutexLock lock(&mutex_);
    ++asked_;
    for (const std::string& address : places_) {
      ServerAddress* const place = reply->add_server();
      place->set_server_index(reply->server_size() - 1);
      place->set_address(address);
    }
    return grpc::Status::OK;
  }

 private:
  std::string address_;
  mutable Mutex mutex_;
  std::vector<std::string> places_ ABSL_GUARDED_BY(mutex_);
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::vector<RegisterServerRequest> registered_ ABSL_GUARDED_BY(mutex_);
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  // Destroyed first, because the server's threads use the members above.
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace torchps
