#include "tools/run/progress_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace torchps {
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

void ProgressView::Say(absl::string_view line) {
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
