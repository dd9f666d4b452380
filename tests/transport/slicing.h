#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "torchps/common/hash.h"

namespace torchps {

// Cuts `bytes` into slices of 0 to `longest` bytes, each in separate memory, as the network may
// deliver them.
inline std::vector<grpc::Slice> CutAnywhere(const std::string& bytes, size_t longest,
                                            uint64_t& random_state) {
  std::vector<grpc::Slice> slices;
  size_t position = 0;
  while (position < bytes.size()) {
    const size_t length =
        std::min<size_t>(UniformBelow(random_state, longest + 1), bytes.size() - position);
    slices.emplace_back(bytes.data() + position, length);
    position += length;
  }
  return slices;
}

inline grpc::ByteBuffer GetBuffer(const std::vector<grpc::Slice>& slices) {
  return grpc::ByteBuffer(slices.data(), slices.size());
}

inline std::string GetBytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace torchps
