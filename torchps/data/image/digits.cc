#include "torchps/data/image/digits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "torchps/common/check.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr int kDigitSide = 28;
constexpr int64_t kPixel = 1024;  // lengths are in 1/1024 of a pixel
constexpr int kDigits = 10;

// A way to write a digit: strokes separated by '|', in a box of 100 x 100 units (x to the right, y
// down). A stroke begins with '~' if a smooth curve connects its points, with '-' for straight
// lines.
struct Style {
  int digit;
  absl::string_view strokes;
};

constexpr Style kFont[] = {
    {0, "~ 50,2 25,12 12,35 12,65 25,88 50,98 75,88 88,65 88,35 75,12 50,2"},
    {0, "~ 64,6 34,8 14,38 15,74 40,97 74,87 88,52 78,18 50,4"},
    {0, "~ 38,6 18,24 16,72 36,96 66,94 84,74 82,26 62,4 36,8"},
    {1, "- 50,2 50,98"},
    {1, "- 28,24 54,3 54,98"},
    {1, "- 30,22 52,3 52,98 | - 26,98 78,98"},
    {2, "~ 15,25 28,6 55,2 80,15 82,36 62,58 35,80 14,96 | - 14,96 88,96"},
    {2, "~ 15,22 35,4 65,4 82,22 76,48 50,72 25,92 14,86 26,74 48,84 70,96 90,88"},
    {2, "~ 20,14 50,2 80,14 78,40 52,66 20,94 | ~ 20,94 44,88 64,96 88,90"},
    {3, "~ 15,14 38,2 68,6 80,24 68,42 42,48 | ~ 42,48 72,52 87,72 74,92 44,99 14,88"},
    {3, "- 14,4 82,4 46,40 | ~ 46,40 76,48 87,70 72,92 42,99 13,88"},
    {4, "- 66,98 66,2 10,68 92,68"},
    {4, "- 22,4 16,55 86,55 | - 72,8 72,98"},
    {4, "~ 28,4 18,34 22,54 48,58 84,50 | ~ 82,6 74,52 68,98"},
    {5, "- 82,4 24,4 20,44 | ~ 20,44 45,36 75,44 87,67 74,91 44,99 13,88"},
    {5, "- 30,6 26,46 | ~ 26,46 60,42 82,62 74,88 44,98 16,92 | - 30,6 86,2"},
    {6, "~ 72,4 42,18 20,46 14,72 26,93 52,98 78,90 86,70 74,52 50,48 26,56 15,72"},
    {6, "~ 60,2 28,46 16,74 32,96 58,97 80,84 82,64 64,52 40,56 22,72"},
    {7, "- 12,4 88,4 40,98"},
    {7, "- 12,4 86,4 42,98 | - 30,50 78,50"},
    {7, "- 12,18 14,5 86,5 | ~ 86,5 62,40 46,70 40,98"},
    {8, "~ 50,48 22,34 22,14 50,2 78,14 78,34 50,48 18,62 14,84 50,99 86,84 82,62 50,48"},
    {8, "~ 78,14 52,2 24,14 30,38 66,58 84,80 60,98 28,94 16,76 36,56 68,38 80,16"},
    {9, "~ 82,32 66,50 40,52 18,38 18,16 40,3 66,5 82,26 | ~ 82,24 80,60 70,98"},
    {9, "~ 80,30 60,50 30,50 16,30 28,8 56,2 80,16 | ~ 80,16 86,56 70,90 42,99 18,90"},
    {9, "~ 78,10 48,2 20,20 24,46 54,50 78,30 | - 78,10 72,98"},
};

struct Point {
  int64_t x;
  int64_t y;
};

struct Stroke {
  bool smooth;
  std::vector<Point> points;
};

using Glyph = std::vector<Stroke>;

Glyph ParseGlyph(absl::string_view text) {
  Glyph glyph;
  for (absl::string_view stroke_text : absl::StrSplit(text, " | ")) {
    Stroke stroke{stroke_text[0] == '~', {}};
    for (absl::string_view pair : absl::StrSplit(stroke_text.substr(2), ' ')) {
      const std::pair<absl::string_view, absl::string_view> xy = absl::StrSplit(pair, ',');
      Point point;
      TPS_CHECK(absl::SimpleAtoi(xy.first, &point.x) && absl::SimpleAtoi(xy.second, &point.y),
                "the font is well-formed");
      stroke.points.push_back(point);
    }
    glyph.push_back(std::move(stroke));
  }
  return glyph;
}

// Returns the styles of each digit.
std::array<std::vector<Glyph>, kDigits> ParseFont() {
  std::array<std::vector<Glyph>, kDigits> font;
  for (const Style& style : kFont) font[style.digit].push_back(ParseGlyph(style.strokes));
  return font;
}

class Dice {
 public:
  explicit Dice(uint64_t state) : state_(state) {}

  int64_t Below(int64_t bound) { return static_cast<int64_t>(UniformBelow(state_, bound)); }
  // Returns a uniform number in [low, high].
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  // Returns a bell-shaped number around 0 in [-reach, reach]: the mean of two uniform numbers. The
  // standard deviation is 0.41 reach.
  int64_t Bell(int64_t reach) { return (Between(-reach, reach) + Between(-reach, reach)) / 2; }
  uint64_t Bits() { return SplitMix64(state_); }

 private:
  uint64_t state_;
};

// Maps the font's box to the picture by an affine map and a bend. The bend interpolates random
// displacements bilinearly between the corners of 2 x 2 fields of the box.
class Distortion {
 public:
  explicit Distortion(Dice& dice)
      : xx_(dice.Between(92, 158)),   // width: 9 to 15 pixels
        yy_(dice.Between(152, 208)),  // height: 15 to 20 pixels
        xy_(dice.Bell(65) - 20),      // slant, more often to the right
        yx_(dice.Bell(50)),           // slope of the base line
        center_{kDigitSide * kPixel / 2 + dice.Bell(5 * kPixel / 2),
                kDigitSide * kPixel / 2 + dice.Bell(5 * kPixel / 2)} {
    for (auto& row : bend_) {
      for (Point& point : row) point = {dice.Bell(kBend), dice.Bell(kBend)};
    }
  }

  Point Map(Point p) const {
    const int64_t column = p.x >= 50;
    const int64_t row = p.y >= 50;
    const int64_t u = p.x - 50 * column;
    const int64_t v = p.y - 50 * row;
    const auto bend = [&](int64_t Point::*axis) {
      return ((50 - v) *
                  ((50 - u) * (bend_[row][column].*axis) + u * (bend_[row][column + 1].*axis)) +
              v * ((50 - u) * (bend_[row + 1][column].*axis) +
                   u * (bend_[row + 1][column + 1].*axis))) /
             2500;
    };
    const int64_t x = p.x - 50;
    const int64_t y = p.y - 50;
    return {center_.x + xx_ * x + xy_ * y + bend(&Point::x),
            center_.y + yx_ * x + yy_ * y + bend(&Point::y)};
  }

 private:
  static constexpr int64_t kBend = 5 * kPixel / 2;

  int64_t xx_, yy_, xy_, yx_;  // 1/1024 pixel per unit of the box
  Point center_;
  Point bend_[3][3];
};

// Returns the Catmull-Rom spline (1974) through a stroke's points, as a polyline.
std::vector<Point> Smooth(const std::vector<Point>& points) {
  constexpr int64_t kSteps = 4;
  const int64_t last = static_cast<int64_t>(points.size()) - 1;
  std::vector<Point> line;
  for (int64_t i = 0; i < last; ++i) {
    const Point& before = points[std::max<int64_t>(i - 1, 0)];
    const Point& from = points[i];
    const Point& to = points[i + 1];
    const Point& after = points[std::min(i + 2, last)];
    for (int64_t k = 0; k < kSteps; ++k) {
      const auto at = [&](int64_t Point::*axis) {
        const int64_t a = before.*axis, b = from.*axis, c = to.*axis, d = after.*axis;
        return (2 * b * kSteps * kSteps * kSteps + (c - a) * k * kSteps * kSteps +
                (2 * a - 5 * b + 4 * c - d) * k * k * kSteps +
                (3 * b - a - 3 * c + d) * k * k * k) /
               (2 * kSteps * kSteps * kSteps);
      };
      line.push_back({at(&Point::x), at(&Point::y)});
    }
  }
  line.push_back(points.back());
  return line;
}

// Draws one picture on a black background.
class Canvas {
 public:
  explicit Canvas(uint8_t* pixels) : pixels_(pixels) {}

  // Draws a line with a round pen of `radius` in gray `ink`. The edge fades over one pixel.
  void Line(Point from, Point to, int64_t radius, int64_t ink) {
    const int64_t reach = radius + kPixel;
    const int64_t dx = to.x - from.x;
    const int64_t dy = to.y - from.y;
    const int64_t length2 = dx * dx + dy * dy;
    const int64_t left = First(std::min(from.x, to.x) - reach);
    const int64_t right = Last(std::max(from.x, to.x) + reach);
    const int64_t top = First(std::min(from.y, to.y) - reach);
    const int64_t bottom = Last(std::max(from.y, to.y) + reach);
    for (int64_t row = top; row <= bottom; ++row) {
      for (int64_t column = left; column <= right; ++column) {
        // The vector from `from` to the pixel's center, minus the part along the line.
        int64_t x = column * kPixel + kPixel / 2 - from.x;
        int64_t y = row * kPixel + kPixel / 2 - from.y;
        if (length2 > 0) {
          const int64_t along = std::clamp<int64_t>(x * dx + y * dy, 0, length2);
          x -= dx * along / length2;
          y -= dy * along / length2;
        }
        const int64_t distance2 = x * x + y * y;
        if (distance2 >= reach * reach) continue;
        const int64_t inside = std::min(reach * reach - distance2, reach * reach - radius * radius);
        Brighten(row, column, ink * inside / (reach * reach - radius * radius));
      }
    }
  }

  // Adds gray noise with a standard deviation of about `reach` / 2, clamped to the range from black
  // to white.
  void AddNoise(Dice& dice, int64_t reach) {
    for (int i = 0; i < kDigitSide * kDigitSide; ++i) {
      const uint64_t bits = dice.Bits();
      // The sum of three bytes minus the mean: bell-shaped in +-382, standard deviation 128.
      const int64_t bell =
          static_cast<int64_t>((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255)) - 382;
      pixels_[i] = std::clamp<int64_t>(pixels_[i] + bell * reach / 256, 0, 255);
    }
  }

 private:
  static int64_t First(int64_t x) { return std::clamp<int64_t>(x / kPixel, 0, kDigitSide); }
  static int64_t Last(int64_t x) { return std::clamp<int64_t>(x / kPixel, -1, kDigitSide - 1); }

  void Brighten(int64_t row, int64_t column, int64_t grey) {
    uint8_t& pixel = pixels_[row * kDigitSide + column];
    pixel = std::max<int64_t>(pixel, grey);
  }

  uint8_t* const pixels_;
};

void DrawGlyph(const Glyph& glyph, Dice& dice, uint8_t* pixels) {
  constexpr int64_t kTremble = kPixel * 3 / 4;
  const Distortion distortion(dice);
  const int64_t radius = dice.Between(kPixel / 8, kPixel * 5 / 4);
  const int64_t ink = dice.Between(140, 255);
  Canvas canvas(pixels);
  for (const Stroke& stroke : glyph) {
    std::vector<Point> line;
    for (const Point& point : stroke.points) {
      const Point mapped = distortion.Map(point);
      line.push_back({mapped.x + dice.Bell(kTremble), mapped.y + dice.Bell(kTremble)});
    }
    if (stroke.smooth) line = Smooth(line);
    for (size_t i = 0; i + 1 < line.size(); ++i) canvas.Line(line[i], line[i + 1], radius, ink);
  }
  // Sometimes adds a stray pen mark.
  if (dice.Below(4) == 0) {
    const Point from{dice.Below(kDigitSide * kPixel), dice.Below(kDigitSide * kPixel)};
    const Point to{from.x + dice.Bell(6 * kPixel), from.y + dice.Bell(6 * kPixel)};
    canvas.Line(from, to, kPixel / 4, ink);
  }
  canvas.AddNoise(dice, dice.Between(0, 48));
}

}  // namespace

ImageSet GenerateDigits(int64_t samples, uint64_t seed, DigitsPart part) {
  const std::array<std::vector<Glyph>, kDigits> font = ParseFont();
  // SplitMix64 advances before each further input is added, so that similar inputs (seed, part and
  // image number) give unrelated states.
  uint64_t base = seed;
  base = SplitMix64(base) ^ static_cast<uint64_t>(part);
  base = SplitMix64(base);
  ImageSet set;
  set.channels = 1;
  set.height = kDigitSide;
  set.width = kDigitSide;
  set.labels.resize(samples);
  set.pixels.resize(samples * kDigitSide * kDigitSide);
  for (int64_t i = 0; i < samples; ++i) {
    uint64_t state = base ^ static_cast<uint64_t>(i);
    Dice dice(SplitMix64(state));
    const std::vector<Glyph>& styles = font[i % kDigits];
    DrawGlyph(styles[dice.Below(styles.size())], dice,
              set.pixels.data() + i * kDigitSide * kDigitSide);
    set.labels[i] = i % kDigits;
  }
  return set;
}

}  // namespace torchps
