#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/report.pb.h"
#include "tools/report/report_words.h"
#include "tools/run_folder/run_list.h"

namespace torchps {

// Describes a run from the files in its folder. Free functions without state; thread-safe.

// "running", "finished", "failed", "stopped", or "killed" where psctl ended without a last word.
std::string ReadState(const ListedRun& run);

// Returns the result in a few words: "test accuracy 98.10 %", "failed: server 0 exited with ...".
std::string OutcomeText(const ListedRun& run);

// Returns a result in the words of ResultText(), with the first metric alone.
std::string ShortResultText(const Metrics& metrics, double loss);

// Returns how long the run took, or has taken by `now`. Zero: it was killed, so no file says.
absl::Duration GetTime(const ListedRun& run, absl::Time now);

// "2026-11-28 10:15:00" in local time.
std::string BeganText(const ListedRun& run);

// Returns the report's JSON. NOT_FOUND says why there is none.
absl::StatusOr<std::string> ReadReportText(const ListedRun& run);

// Returns the report. NOT_FOUND says why there is none; DATA_LOSS: it cannot be parsed.
absl::StatusOr<Report> ReadReport(const ListedRun& run);

}  // namespace torchps
