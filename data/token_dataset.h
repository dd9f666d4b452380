#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "data/text/token_file.h"

namespace torchps {

// A file of tokens as a language model's samples. Sample i is the `context` tokens from i * context
// on, its target the same moved on by one, as in TextDataset. A batch is int64 [B, T] twice, read
// from the file when it is asked for.
//
// Get() fails with what TokenFile::Read says, and with DATA_LOSS where a token is not below
// `vocabulary`.
class TokenDataset : public Dataset {
 public:
  // Keeps at most `samples` samples; 0 keeps all. `vocabulary`: tokens are below it.
  // REQUIRES: context >= 1, file->size() >= context + 1.
  TokenDataset(std::unique_ptr<const TokenFile> file, int64_t context, int64_t vocabulary,
               int64_t samples);

  int64_t size() const override { return size_; }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  uint32_t Fingerprint() const override;

 private:
  const std::unique_ptr<const TokenFile> file_;
  const int64_t context_;
  const int64_t vocabulary_;
  int64_t size_;
};

}  // namespace torchps
