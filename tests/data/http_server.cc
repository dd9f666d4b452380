#include "tests/data/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace torchps {
namespace {

// Binds `fd` to a free port of 127.0.0.1 and returns the URL.
std::string BindToFreePort(int fd) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

}  // namespace

HttpServer::HttpServer(std::function<std::string(const std::string& path)> respond)
    : respond_(std::move(respond)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  url_ = BindToFreePort(listener_);
  EXPECT_EQ(listen(listener_, 8), 0);
  thread_ = std::thread([this] { Serve(); });
}

HttpServer::~HttpServer() {
  shutdown(listener_, SHUT_RDWR);  // wakes accept
  thread_.join();
  close(listener_);
}

std::vector<std::string> HttpServer::requests() {
  MutexLock lock(&mutex_);
  return requests_;
}

void HttpServer::Serve() {
  while (true) {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) return;
    std::string head;
    char byte;
    while (head.find("\r\n\r\n") == std::string::npos && read(connection, &byte, 1) == 1) {
      head += byte;
    }
    // "GET /path HTTP/1.1"
    const size_t begin = head.find(' ') + 1;
    const std::string path = head.substr(begin, head.find(' ', begin) - begin);
    {
      MutexLock lock(&mutex_);
      requests_.push_back(path);
    }
    const std::string answer = respond_(path);
    size_t sent = 0;
    while (sent < answer.size()) {
      const ssize_t n = send(connection, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;  // the client closed the connection
      sent += n;
    }
    close(connection);
  }
}

std::string HttpAnswer(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

DeadEnd::DeadEnd() : socket_(socket(AF_INET, SOCK_STREAM, 0)), url_(BindToFreePort(socket_)) {}

DeadEnd::~DeadEnd() { close(socket_); }

}  // namespace torchps
