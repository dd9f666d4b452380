#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace torchps::testing {

// Returns a little-endian number.
inline std::string ZipNumber(uint64_t number, size_t bytes) {
  std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
  text.resize(bytes, '\0');
  return text;
}

// Returns a zip archive of `count` empty, stored entries, with Zip64 if the count needs it or if
// `zip64`. See PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16.
inline std::string ZipArchive(uint64_t count, bool zip64 = false) {
  std::string archive;
  std::string directory;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = absl::StrCat("archive/data/", i);
    // The version and the length of the name. Between them, flags, method, time, date, CRC and
    // sizes are 0.
    const std::string fields = ZipNumber(45, 22) + ZipNumber(name.size(), 4);
    absl::StrAppend(&directory, "PK\1\2", ZipNumber(45, 2), fields, ZipNumber(0, 10),
                    ZipNumber(archive.size(), 4), name);
    absl::StrAppend(&archive, "PK\3\4", fields, name);
  }
  const uint64_t offset = archive.size();
  const uint64_t end = offset + directory.size();
  archive += directory;
  if (zip64 || count > 0xffff) {
    absl::StrAppend(&archive, "PK\6\6", ZipNumber(44, 8), ZipNumber(45, 2), ZipNumber(45, 2),
                    ZipNumber(0, 8), ZipNumber(count, 8), ZipNumber(count, 8),
                    ZipNumber(directory.size(), 8), ZipNumber(offset, 8));
    absl::StrAppend(&archive, "PK\6\7", ZipNumber(0, 4), ZipNumber(end, 8), ZipNumber(1, 4));
  }
  const std::string count16 = ZipNumber(std::min<uint64_t>(count, 0xffff), 2);
  return absl::StrCat(archive, "PK\5\6", ZipNumber(0, 4), count16, count16,
                      ZipNumber(directory.size(), 4), ZipNumber(offset, 6));
}

}  // namespace torchps::testing
