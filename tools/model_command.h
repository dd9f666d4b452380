#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tools/base/flag_table.h"

// `psctl evaluate`, `psctl predict` and `psctl generate` measure a trained model or a running job,
// write a model's answers, and continue a text. A worker program does the work, because it knows
// the module. These commands find the model, the job and the program.

namespace torchps {

std::vector<FlagSpec> EvaluateFlags();
std::vector<FlagSpec> PredictFlags();
std::vector<FlagSpec> GenerateFlags();

// Return the exit code of psctl: the worker program's, or that of a bad flag.
int EvaluateCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);
int PredictCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);
int GenerateCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// The folder of the model's run, which holds its job file: the model's own, or the one above a
// checkpoint. Empty: there is none.
std::string GetRunFolder(const std::string& model);
std::string GetJobFile(const std::string& model);

}  // namespace torchps
