#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tools/base/flag_table.h"

// `psctl evaluate` and `psctl predict`: what a trained model or a running job is worth, and what a
// model answers. A worker program does it, for it knows the module; these find the model, the job
// and the program.

namespace torchps {

std::vector<FlagSpec> EvaluateFlags();
std::vector<FlagSpec> PredictFlags();

// Return the exit code of psctl: the worker program's, or that of a bad flag.
int EvaluateCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);
int PredictCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// The folder of the model's run, which holds its job file: the model's own, or the one above a
// checkpoint. Empty: there is none.
std::string RunFolderOf(const std::string& model);
std::string JobFileOf(const std::string& model);

}  // namespace torchps
