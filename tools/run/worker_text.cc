#include "tools/run/worker_text.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "tools/base/format.h"

namespace torchps {
namespace {

// Appends the loss if it is a number, including nan and inf.
void AddLoss(const StatusLine& line, absl::string_view title, std::string* text) {
  const std::string said = line.Field("loss");
  double loss = 0;
  if (!absl::SimpleAtod(said, &loss)) return;
  absl::StrAppend(text, title, std::isnan(loss) ? "nan" : absl::StrFormat("%.4f", loss));
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

}  // namespace torchps
