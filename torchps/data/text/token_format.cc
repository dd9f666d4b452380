#include "torchps/data/text/token_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace torchps {
namespace {

constexpr absl::string_view kNumpyMagic("\x93NUMPY", 6);

// The first two of the 256 int32 numbers in llm.c's header; the third is the token count.
struct LlmcHeader {
  uint64_t magic;
  uint64_t version;
  int width;
};
constexpr LlmcHeader kLlmcHeaders[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr int64_t kLlmcHeaderBytes = 1024;

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

// Returns the text between `key` and `end`; empty if there is none.
absl::string_view Between(absl::string_view text, absl::string_view key, char end) {
  const size_t found = text.find(key);
  if (found == absl::string_view::npos) return "";
  text.remove_prefix(found + key.size());
  const size_t length = text.find(end);
  return length == absl::string_view::npos ? "" : text.substr(0, length);
}

// Returns the element size of NumPy's type `descr` in bytes; 0: unsupported for tokens.
int NumpyWidth(absl::string_view descr) {
  if (descr == "<u2") return 2;
  if (descr == "<u4" || descr == "<i4") return 4;
  if (descr == "<u8" || descr == "<i8") return 8;
  return 0;
}

// Parses NumPy's format, NEP 1: magic, version, length, then a Python dictionary such as {'descr':
// '<u2', 'fortran_order': False, 'shape': (9,), }.
absl::StatusOr<TokenFormat> ParseNumpy(absl::string_view beginning) {
  constexpr size_t kLengthAt = 8;
  if (beginning.size() < 12) return absl::DataLossError("expected a NumPy array, got its start");
  const size_t length_bytes = beginning[6] == 1 ? 2 : 4;
  TokenFormat format;
  format.begin = kLengthAt + length_bytes + LittleEndian(beginning.substr(kLengthAt, length_bytes));
  const absl::string_view dictionary =
      beginning.substr(0, format.begin).substr(kLengthAt + length_bytes);
  const absl::string_view type = Between(dictionary, "'descr': '", '\'');
  const absl::string_view shape = Between(dictionary, "'shape': (", ')');
  format.width = NumpyWidth(type);
  absl::string_view size = shape;
  const bool is_list =
      absl::ConsumeSuffix(&size, ",") && absl::SimpleAtoi(size, &format.size) && format.size >= 0;
  if (is_list && format.width != 0) return format;
  return absl::InvalidArgumentError(absl::StrFormat(
      "expected a NumPy array of one dimension and dtype uint16, uint32, int32 or int64, "
      "little-endian, got dtype '%s' and shape (%s) (convert it, for example with "
      "tokens.ravel().astype('<u4'))",
      type.empty() ? "structured" : absl::CHexEscape(type), absl::CHexEscape(shape)));
}

absl::StatusOr<std::optional<TokenFormat>> ParseLlmc(absl::string_view beginning) {
  if (beginning.size() < 12) return std::nullopt;
  const uint64_t magic = LittleEndian(beginning.substr(0, 4));
  const uint64_t version = LittleEndian(beginning.substr(4, 4));
  const auto size = static_cast<int64_t>(LittleEndian(beginning.substr(8, 4)));
  for (const LlmcHeader& header : kLlmcHeaders) {
    if (magic != header.magic) continue;
    if (version == header.version) return TokenFormat{kLlmcHeaderBytes, header.width, size};
    return absl::InvalidArgumentError(absl::StrFormat(
        "expected version %d of llm.c's header with magic number %d, got version %d",
        header.version, magic, version));
  }
  return std::nullopt;
}

// Types of files that do not contain bare tokens, and their first bytes.
struct OtherFile {
  absl::string_view magic;
  absl::string_view name;
};
constexpr OtherFile kOtherFiles[] = {
    {"PK\x03\x04", "a zip archive (.npz, torch.save)"},
    {"\x1f\x8b\x08", "a gzip file"},
    {"\x28\xb5\x2f\xfd", "a Zstandard file"},
    {"\x89HDF", "an HDF5 file"},
    {"PAR1", "a Parquet file"},
    {"\x80\x04\x95", "a Python pickle"},
    {"\x80\x05\x95", "a Python pickle"},
};

// Counts the 16-bit words above `threshold`, separately for each word index modulo 4. 65535 counts
// as small, because it is the upper half of a negative number.
struct LargeWords {
  LargeWords(absl::string_view sample, uint64_t threshold) {
    for (size_t i = 0; i + 2 <= sample.size(); i += 2) {
      const uint64_t word = LittleEndian(sample.substr(i, 2));
      at[i / 2 % 4] += word > threshold && word < 65535;
    }
  }
  int64_t at[4] = {};
};

// True if `few` is so much smaller than `many` that chance does not explain it.
bool IsRare(int64_t few, int64_t many) { return many >= 4 * few + 16; }

// True if few upper halves of the 32-bit numbers are above `threshold`, but many lower halves are.
// With a threshold above 0, half of the words at position 0 must also be above it, because special
// 16-bit tokens may occur at even positions only.
bool LooksWider(const LargeWords& large, int threshold, int64_t words) {
  const int64_t lower = large.at[0] + large.at[2];
  return IsRare(large.at[1] + large.at[3], lower) && (threshold == 0 || 8 * large.at[0] >= words);
}

// True if words are large at only some of the four positions, as in floating-point numbers and in
// 32-bit or 64-bit numbers in another byte order.
bool HasSmallPosition(const LargeWords& large, int64_t words) {
  const auto [few, many] = std::minmax_element(std::begin(large.at), std::end(large.at));
  return IsRare(*few, *many) && 8 * *many >= words;
}

// The least sample size in bytes for each check: smaller samples may fail it by chance.
constexpr size_t kLeastText = 64;
constexpr size_t kLeastBytes = 1024;

// Counts how often each byte occurs at every second position of a sample.
class ByteCounts {
 public:
  ByteCounts(absl::string_view sample, size_t first) {
    for (size_t i = first; i < sample.size(); i += 2) {
      ++counts_[static_cast<uint8_t>(sample[i])];
      ++size_;
    }
  }

  int64_t distinct() const {
    return absl::c_count_if(counts_, [](int64_t count) { return count > 0; });
  }

  // Returns the entropy of a byte at these positions, in bits.
  double Entropy() const {
    double entropy = 0;
    for (const int64_t count : counts_) {
      const double part = static_cast<double>(count) / static_cast<double>(size_);
      if (count > 0) entropy -= part * std::log2(part);
    }
    return entropy;
  }

  // True if both could have been drawn from the same distribution over at most `most` values, by a
  // two-sample chi-square test. The limit is generous, because neighbors may depend on each other,
  // for example letters.
  bool IsAlike(const ByteCounts& other, int64_t most) const {
    double chi_square = 0;
    int64_t values = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const auto sum = static_cast<double>(counts_[i] + other.counts_[i]);
      const auto difference = static_cast<double>(counts_[i] - other.counts_[i]);
      if (sum == 0) continue;
      ++values;
      chi_square += difference * difference / sum;
    }
    return values <= most && chi_square < 2 * static_cast<double>(values) + 50;
  }

 private:
  std::array<int64_t, 256> counts_ = {};
  int64_t size_ = 0;
};

// True if a sample does not contain control characters. Tokens contain many bytes below 9.
bool IsText(absl::string_view sample) {
  return absl::c_none_of(sample,
                         [](char c) { return absl::ascii_iscntrl(c) && !absl::ascii_isspace(c); });
}

// Returns a description if a sample looks big-endian or like 8-bit tokens; otherwise "".
//
// The upper byte of a token varies less than the lower byte. Only 8-bit tokens have similar bytes
// at both positions.
std::string OtherBytes(absl::string_view sample) {
  constexpr int64_t kFewValues = 16;
  constexpr int64_t kMaxOf8Bits = 240;  // random 16-bit tokens use all 256 values
  constexpr double kClearlyMore = 1;    // bits
  const ByteCounts lower(sample, 0), upper(sample, 1);
  if (upper.distinct() < kFewValues) return "";
  if (upper.Entropy() > lower.Entropy() + kClearlyMore) return "is big-endian";
  const bool is_8_bits = lower.distinct() >= kFewValues && lower.IsAlike(upper, kMaxOf8Bits);
  return is_8_bits ? "looks like 8-bit tokens" : "";
}

}  // namespace

absl::StatusOr<std::optional<TokenFormat>> ParseTokenHeader(absl::string_view beginning,
                                                            int64_t bytes) {
  absl::StatusOr<std::optional<TokenFormat>> format =
      absl::StartsWith(beginning, kNumpyMagic) ? ParseNumpy(beginning) : ParseLlmc(beginning);
  if (!format.ok() || !format->has_value()) return format;
  const auto& [begin, width, size] = **format;
  if (bytes >= begin && (bytes - begin) % width == 0 && (bytes - begin) / width == size) {
    return format;
  }
  return absl::DataLossError(absl::StrFormat(
      "expected %d tokens of %d bits after a header of %d bytes, as the header says, got a file of "
      "%d bytes",
      size, 8 * width, begin, bytes));
}

absl::Status CheckTokensOf16Bits(absl::string_view sample) {
  for (const OtherFile& other : kOtherFiles) {
    if (!absl::StartsWith(sample, other.magic)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "expected tokens, got ", other.name,
        " (write the numbers alone, or set data.tokens.bits: 16 if it is no such file)"));
  }
  if (sample.size() >= kLeastText && IsText(sample)) {
    return absl::InvalidArgumentError(
        "expected tokens of 16 bits, got a text file (data.source: \"text\" reads text; set "
        "data.tokens.bits: 16 if it holds tokens)");
  }
  // 16-bit tokens look alike at every position. Wider tokens have an upper half that is 0, or small
  // if tokens are above 65535.
  for (const int threshold : {0, 255}) {
    const LargeWords large(sample, threshold);
    if (!LooksWider(large, threshold, static_cast<int64_t>(sample.size() / 2))) continue;
    const int bits = IsRare(large.at[2] + large.at[3], large.at[0]) ? 64 : 32;
    return absl::InvalidArgumentError(absl::StrFormat(
        "expected tokens of 16 bits, got a file that looks like %d-bit tokens: every second "
        "number is mostly %s (set data.tokens.bits: %d, or 16 if it is 16)",
        bits, threshold == 0 ? "0" : "below 256", bits));
  }
  std::string other;
  if (HasSmallPosition(LargeWords(sample, 255), static_cast<int64_t>(sample.size() / 2))) {
    other = "looks like floating-point or big-endian numbers";
  } else if (sample.size() >= kLeastBytes) {
    other = OtherBytes(sample);
  }
  if (other.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "expected tokens of 16 bits, little-endian, got a file that %s (convert it, for example with "
      "NumPy's astype('<u2'), or set data.tokens.bits: 16 if it is right)",
      other));
}

}  // namespace torchps
