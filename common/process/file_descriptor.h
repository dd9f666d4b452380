#pragma once

#include <unistd.h>

#include <utility>

namespace torchps {

// Owns an open file descriptor and closes it; -1: none. Movable, thread-compatible.
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
  // Gives up the ownership.
  int Release() { return std::exchange(fd_, -1); }
  // What close() says is lost: a caller that must know that data is on the disk syncs before.
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace torchps
