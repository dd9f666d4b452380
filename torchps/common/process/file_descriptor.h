#pragma once

#include <unistd.h>

#include <utility>

namespace torchps {

// Owns an open file descriptor and closes it; -1 means empty. Movable, thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  // Releases ownership of the descriptor and returns it.
  int Release() { return std::exchange(fd_, -1); }
  // Ignores errors from close(). Callers that need durable data must sync first.
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace torchps
