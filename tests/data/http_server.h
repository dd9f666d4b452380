#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "torchps/common/mutex.h"

namespace torchps {

// Minimal web server for tests on a free port of 127.0.0.1. Handles one request at a time.
// `respond` gets the path and returns the complete answer, head and body. Runs until destroyed.
class HttpServer {
 public:
  explicit HttpServer(std::function<std::string(const std::string& path)> respond);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "http://127.0.0.1:PORT"
  const std::string& url() const { return url_; }
  // The paths requested so far.
  std::vector<std::string> requests();

 private:
  void Serve();

  const std::function<std::string(const std::string& path)> respond_;
  int listener_ = -1;
  std::string url_;
  Mutex mutex_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Returns a complete answer: "HTTP/1.1 STATUS", the length, the body.
std::string HttpAnswer(const std::string& status, const std::string& body);

// A URL on 127.0.0.1 that refuses connections. The object keeps the port bound, so that no other
// process listens there.
class DeadEnd {
 public:
  DeadEnd();
  ~DeadEnd();
  const std::string& url() const { return url_; }

 private:
  int socket_ = -1;
  std::string url_;
};

}  // namespace torchps
