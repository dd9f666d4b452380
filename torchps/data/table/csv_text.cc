#include "torchps/data/table/csv_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/text.h"

namespace torchps {
namespace {

// Lines used to detect the separator.
constexpr int64_t kSampledLines = 50;

struct FileKind {
  absl::string_view magic;
  absl::string_view name;
};

constexpr FileKind kOtherFiles[] = {
    {"PK\x03\x04", "a spreadsheet file (.xlsx, .ods) or another zip file"},
    {"\xd0\xcf\x11\xe0", "a spreadsheet file (.xls)"},
    {"PAR1", "a Parquet file"},
    {"%PDF-", "a PDF file"},
    {"\x1f\x8b", "a gzip file within a gzip file"},
    {"BZh91AY&SY", "a bzip2 file"},
    {"\x28\xb5\x2f\xfd", "a zstd file"},
    {"<!DOCTYPE", "a web page"},
};

absl::Status NotText(absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat(
      "expected a table as text, got ", got, " (export it as CSV, a spreadsheet sheet by sheet)"));
}

absl::Status CheckKind(absl::string_view bytes) {
  for (const FileKind& kind : kOtherFiles) {
    if (absl::StartsWith(bytes, kind.magic)) return NotText(kind.name);
  }
  return absl::OkStatus();
}

enum class Encoding { kBytes, kUtf16Little, kUtf16Big };

// Returns the encoding. In UTF-16 without a byte-order mark, every second byte of ASCII text is 0.
Encoding FindEncoding(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xff\xfe")) return Encoding::kUtf16Little;
  if (absl::StartsWith(bytes, "\xfe\xff")) return Encoding::kUtf16Big;
  const size_t pairs = std::min<size_t>(bytes.size(), 1 << 16) / 2;
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < 2 * pairs; ++i) zeros[i % 2] += bytes[i] == '\0';
  if (zeros[0] == 0 && 2 * zeros[1] > pairs) return Encoding::kUtf16Little;
  if (zeros[1] == 0 && 2 * zeros[0] > pairs) return Encoding::kUtf16Big;
  return Encoding::kBytes;
}

void AppendUtf8(uint32_t point, std::string& text) {
  const auto append = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) return append(point);
  if (point < 0x800) {
    append(0xc0 | point >> 6);
  } else if (point < 0x10000) {
    append(0xe0 | point >> 12);
    append(0x80 | (point >> 6 & 0x3f));
  } else {
    append(0xf0 | point >> 18);
    append(0x80 | (point >> 12 & 0x3f));
    append(0x80 | (point >> 6 & 0x3f));
  }
  append(0x80 | (point & 0x3f));
}

// Converts UTF-16. Replaces an unpaired surrogate by U+FFFD.
std::string ToUtf8(absl::string_view utf16, bool big_endian) {
  const auto unit = [&](size_t i) -> uint32_t {
    const auto first = static_cast<uint8_t>(utf16[2 * i]);
    const auto second = static_cast<uint8_t>(utf16[2 * i + 1]);
    return big_endian ? first << 8 | second : second << 8 | first;
  };
  const size_t units = utf16.size() / 2;
  std::string text;
  text.reserve(units);
  for (size_t i = 0; i < units; ++i) {
    uint32_t point = unit(i);
    if (point >> 10 == 0x36 && i + 1 < units && unit(i + 1) >> 10 == 0x37) {
      point = 0x10000 + ((point & 0x3ff) << 10 | (unit(++i) & 0x3ff));
    } else if (point >> 11 == 0x1b) {
      point = 0xfffd;
    }
    AppendUtf8(point, text);
  }
  return text;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

// The Unicode characters of the bytes 0x80 to 0x9f in Windows-1252. 0: the same as in Latin-1.
constexpr uint16_t kWindows1252[] = {
    0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

// Converts Windows-1252, the encoding of spreadsheets in Western Europe and America.
std::string FromWindows1252(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char byte : bytes) {
    const auto value = static_cast<uint8_t>(byte);
    const bool is_special = value >= 0x80 && value < 0xa0 && kWindows1252[value - 0x80] != 0;
    AppendUtf8(is_special ? kWindows1252[value - 0x80] : value, text);
  }
  return text;
}

// Converts CR LF, and CR alone, to LF.
void ConvertLineEnds(std::string& text) {
  size_t size = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[size++] = text[i] == '\r' ? '\n' : text[i];
  }
  text.resize(size);
}

absl::string_view CutLine(absl::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool IsBlank(absl::string_view line) { return absl::StripAsciiWhitespace(line).empty(); }

// Returns the separator in a line such as "sep=;", as in Excel; 0 for other lines.
char NamedSeparator(absl::string_view line) {
  if (line.size() > 2 && line.front() == '"' && line.back() == '"') {
    line = line.substr(1, line.size() - 2);
  }
  if (line.size() != 5 || !absl::StartsWithIgnoreCase(line, "sep=")) return 0;
  const char separator = line.back();
  const bool may_separate =
      separator == '\t' || (absl::ascii_isprint(separator) && !absl::ascii_isalnum(separator) &&
                            !absl::StrContains("\".+-", {&separator, 1}));
  return may_separate ? separator : 0;
}

enum class Quotes { kFine, kOpen, kTextBehind };

// Splits a line. If the result is not kFine, `fields` contains the fields before the bad field.
Quotes SplitFields(absl::string_view line, char separator, CsvText::Fields& fields) {
  const bool by_spaces = separator == ' ';
  const auto separates = [=](char c) { return c == separator || (by_spaces && c == '\t'); };
  const auto is_padding = [=](char c) {
    return absl::ascii_isspace(c) && (by_spaces || c != separator);
  };
  fields.clear();
  if (by_spaces) line = absl::StripAsciiWhitespace(line);
  for (size_t i = 0;; ++i) {
    while (i < line.size() && is_padding(line[i])) ++i;
    if (i < line.size() && line[i] == '"') {
      std::string field;
      while (true) {
        if (++i == line.size()) return Quotes::kOpen;
        if (line[i] == '"' && (++i == line.size() || line[i] != '"')) break;
        field += line[i];
      }
      while (!by_spaces && i < line.size() && is_padding(line[i])) ++i;
      if (i < line.size() && !separates(line[i])) return Quotes::kTextBehind;
      fields.push_back(std::move(field));
    } else {
      const size_t begin = i;
      while (i < line.size() && !separates(line[i])) ++i;
      fields.emplace_back(absl::StripAsciiWhitespace(line.substr(begin, i - begin)));
    }
    if (i == line.size()) return Quotes::kFine;
  }
}

// Counts how often a character separates fields.
struct Candidate {
  char separator;
  size_t in_first_line = 0;
  int64_t agreeing_lines = 0;  // lines with as many separators as the first line
};

Candidate Count(absl::string_view text, char separator) {
  Candidate candidate{separator};
  CsvText::Fields fields;
  for (int64_t lines = 0; lines < kSampledLines && !text.empty();) {
    const absl::string_view line = CutLine(text);
    if (IsBlank(line)) continue;
    const bool is_bad = SplitFields(line, separator, fields) != Quotes::kFine;
    const size_t separators = fields.size() + (is_bad ? 1 : 0) - 1;
    if (lines++ == 0) candidate.in_first_line = separators;
    if (candidate.in_first_line == 0) break;
    // A bad quote hides where the line's fields end, so the line counts as agreeing. Reading the
    // file reports the error.
    if (is_bad || separators == candidate.in_first_line) ++candidate.agreeing_lines;
  }
  return candidate;
}

bool IsBetter(const Candidate& a, const Candidate& b) {
  if (a.agreeing_lines != b.agreeing_lines) return a.agreeing_lines > b.agreeing_lines;
  // If each field contains a decimal comma, a line has one comma more than separators. So that many
  // commas do not make the comma better than `a`.
  if (b.separator == ',' && a.in_first_line > 0 && b.in_first_line <= a.in_first_line + 1) {
    return true;
  }
  return a.in_first_line > b.in_first_line;
}

int64_t SampledLines(absl::string_view text) {
  int64_t lines = 0;
  while (lines < kSampledLines && !text.empty()) lines += !IsBlank(CutLine(text));
  return lines;
}

}  // namespace

absl::StatusOr<CsvText> CsvText::Open(std::string bytes) {
  if (absl::Status status = CheckKind(bytes); !status.ok()) return status;
  const Encoding encoding = FindEncoding(bytes);
  if (encoding != Encoding::kBytes) {
    if (bytes.size() % 2 != 0) {
      return absl::DataLossError(absl::StrCat("expected an even number of bytes in UTF-16, got ",
                                              bytes.size(), " (save it as UTF-8)"));
    }
    bytes = ToUtf8(bytes, encoding == Encoding::kUtf16Big);
  }
  if (absl::StrContains(bytes, '\0')) return NotText("a binary file");
  // Convert to UTF-8, because a model file's metadata require it.
  if (!IsUtf8(bytes)) bytes = FromWindows1252(bytes);
  if (absl::StrContains(bytes, '\r')) ConvertLineEnds(bytes);
  CsvText text(std::move(bytes));
  if (absl::StartsWith(text.text_, "\xef\xbb\xbf")) text.begin_ = 3;
  text.FindSeparator();
  if (IsBlank(text.Table())) {
    return absl::InvalidArgumentError("expected at least one row, got an empty file");
  }
  return text;
}

void CsvText::FindSeparator() {
  absl::string_view rest = Table();
  if (const char named = NamedSeparator(CutLine(rest)); named != 0) {
    separator_ = named;
    begin_ = text_.size() - rest.size();
    lines_before_ = 1;
    return;
  }
  Candidate best = Count(Table(), ',');
  for (char separator : {';', '\t', '|'}) {
    const Candidate candidate = Count(Table(), separator);
    if (IsBetter(candidate, best)) best = candidate;
  }
  const int64_t half = SampledLines(Table()) / 2;
  if (best.agreeing_lines <= half) {
    // Try spaces last, because titles and texts also contain spaces.
    const Candidate spaces = Count(Table(), ' ');
    if (spaces.agreeing_lines > half) best = spaces;
  }
  separator_ = best.separator;
}

absl::Status CsvText::ForEachLine(Visit visit, int64_t max_lines) const {
  absl::string_view rest = Table();
  Fields fields;
  for (int64_t number = lines_before_ + 1; !rest.empty() && max_lines > 0; ++number) {
    const absl::string_view line = CutLine(rest);
    if (IsBlank(line)) continue;
    --max_lines;
    const Quotes quotes = SplitFields(line, separator_, fields);
    if (quotes == Quotes::kOpen) {
      return absl::DataLossError(absl::StrFormat(
          "line %d, column %d: expected a closing quote, got the end of the line (a field must not "
          "hold a line break)",
          number, fields.size()));
    }
    if (quotes == Quotes::kTextBehind) {
      return absl::DataLossError(absl::StrFormat(
          "line %d, column %d: expected a separator behind the closing quote, got text (write a "
          "quote within a field twice)",
          number, fields.size()));
    }
    if (absl::Status status = visit(number, fields); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace torchps
