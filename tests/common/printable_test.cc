#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "torchps/common/hash.h"
#include "torchps/common/text.h"

namespace torchps {
namespace {

TEST(PrintableTest, KeepsPlainText) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("alpha.example cuda:0 (NVIDIA H100)"), "alpha.example cuda:0 (NVIDIA H100)");
  EXPECT_EQ(Printable("größe 1 µs 質 𝄞"), "größe 1 µs 質 𝄞");
}

TEST(PrintableTest, ReplacesTerminalControls) {
  EXPECT_EQ(Printable("a\x1b]0;owned\x07\x1b[2J"), "a?]0;owned??[2J");
  EXPECT_EQ(Printable("x\r\nserver 0: all is well\t\x7f"), "x??server 0: all is well??");
  EXPECT_EQ(Printable(absl::string_view("\0a", 2)), "?a");
  // The terminal control CSI: as the character U+009B, and as one byte of Latin-1.
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "?2J");
  EXPECT_EQ(Printable("\x9b"
                      "2J"),
            "?2J");
}

TEST(PrintableTest, ReplacesIncompleteCharacters) {
  EXPECT_EQ(Printable("\xc3"), "?");
  EXPECT_EQ(Printable("\xe8\xb3z"), "??z");
  EXPECT_EQ(Printable("\xc0\x9b\xff"), "???");
}

TEST(PrintableTest, NeverReturnsAControlCharacter) {
  constexpr uint64_t kSeed = 15;
  uint64_t random = kSeed;
  for (int i = 0; i < 10'000; ++i) {
    std::string noise(SplitMix64(random) % 20, '\0');
    for (char& byte : noise) byte = static_cast<char>(SplitMix64(random));
    const std::string printable = Printable(noise);
    EXPECT_LE(printable.size(), noise.size());
    EXPECT_EQ(Printable(printable), printable);
    for (const char byte : printable) {
      EXPECT_TRUE(static_cast<uint8_t>(byte) >= 0x20 && byte != '\x7f');
    }
  }
}

}  // namespace
}  // namespace torchps
