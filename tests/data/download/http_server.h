#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace torchps {

// A web server of a few lines for tests: on a free port of 127.0.0.1, one request after the other,
// each answered with what `respond` returns for the path, head and body in full. Runs until
// destroyed.
class HttpServer {
 public:
  explicit HttpServer(std::function<std::string(const std::string& path)> respond);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "http://127.0.0.1:PORT"
  const std::string& url() const { return url_; }
  // The paths asked for so far.
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

// A whole answer: "HTTP/1.1 STATUS", the length, the body.
std::string HttpAnswer(const std::string& status, const std::string& body);

// A URL of 127.0.0.1 on which nobody listens: its port is bound while the object lives.
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
