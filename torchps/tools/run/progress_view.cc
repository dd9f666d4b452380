#include "torchps/tools/run/progress_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "torchps/common/check.h"
#include "torchps/tools/base/format.h"

namespace torchps {
namespace {

// Appends the loss if it is a number, including nan and inf.
void AddLoss(const StatusLine& line, absl::string_view title, std::string* text) {
  const std::string said = line.Field("loss");
  double loss = 0;
  if (!absl::SimpleAtod(said, &loss)) return;
  absl::StrAppend(text, title, FormatLoss(loss));
}

}  // namespace

std::string ProgressText(const StatusLine& line, int epochs) {
  std::string text =
      absl::StrFormat("epoch %s/%d   step %6s", line.Field("epoch"), epochs, line.Field("step"));
  AddLoss(line, "   loss ", &text);
  if (const auto accuracy = line.Number("accuracy")) {
    absl::StrAppend(&text, "   accuracy ", FormatPercent(*accuracy, 1));
  }
  if (const auto rate = line.Number("samples_per_s")) {
    absl::StrAppendFormat(&text, "   %8s samples/s", WithThousands(std::llround(*rate)));
  }
  if (const auto share = line.Number("wait_share")) {
    absl::StrAppendFormat(&text, "   waiting %3.0f %%", *share * 100);
  }
  return text;
}

std::string EvaluationText(const StatusLine& line, int epochs) {
  std::string text = absl::StrCat("epoch ", line.Field("epoch"), "/", epochs);
  if (const auto accuracy = line.Number("accuracy")) {
    absl::StrAppend(&text, "   test accuracy ", FormatPercent(*accuracy, 2));
  }
  for (const auto& [name, value] : line.fields) {
    static const auto* const known =
        new std::set<std::string>{"slot", "epoch", "accuracy", "loss", "samples"};
    if (known->count(name) == 0) absl::StrAppend(&text, "   test ", name, " ", value);
  }
  AddLoss(line, "   test loss ", &text);
  if (const auto samples = line.Number("samples")) {
    absl::StrAppend(&text, "   on ", WithThousands(std::llround(*samples)), " samples");
  }
  return text;
}

namespace {

// Returns the first `columns` characters of UTF-8 text.
absl::string_view CutTo(absl::string_view text, int columns) {
  int characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_character = (text[i] & 0xC0) != 0x80;
    if (begins_character && ++characters > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

ProgressView::Options ProgressView::OfTerminal() {
  Options view;
  const char* const kind = std::getenv("TERM");
  view.terminal = isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string(kind) != "dumb";
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) view.columns = size.ws_col;
  return view;
}

ProgressView::ProgressView(Options options, int rows, std::ostream& out, const Clock& clock)
    : options_(options), out_(out), clock_(clock), rows_(rows) {}

void ProgressView::Print(absl::string_view line) {
  EraseRows();
  out_ << line << "\n";
  DrawRows();
  out_.flush();
}

void ProgressView::SetRow(int row, absl::string_view text) { Show(row, text, /*always=*/false); }

void ProgressView::FinishRow(int row, absl::string_view text) { Show(row, text, /*always=*/true); }

void ProgressView::Show(int row, absl::string_view text, bool always) {
  TPS_CHECK(row >= 0 && row < static_cast<int>(rows_.size()), "the view has no such row");
  Row& shown = rows_[row];
  shown.text = std::string(text);
  if (options_.terminal) {
    EraseRows();
    DrawRows();
  } else if (const absl::Duration now = clock_.Now();
             always || now - shown.printed_at >= options_.row_interval) {
    shown.printed_at = now;
    out_ << shown.text << "\n";
  }
  out_.flush();
}

void ProgressView::EraseRows() {
  // Moves up to the first row and erases down to the end of the screen.
  if (drawn_ > 0) out_ << "\x1b[" << drawn_ << "A\x1b[J";
  drawn_ = 0;
}

void ProgressView::DrawRows() {
  if (!options_.terminal) return;
  for (const Row& row : rows_) {
    if (row.text.empty()) continue;
    // Leaves one column free, because a full line wraps on some terminals.
    out_ << CutTo(row.text, options_.columns - 1) << "\n";
    ++drawn_;
  }
}

}  // namespace torchps
