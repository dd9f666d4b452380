#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "torchps/tools/base/flag_table.h"

// `psctl evaluate` measures a trained model or a running job, `psctl predict` writes a model's
// predictions, and `psctl generate` continues a text. A worker program does the work, because it
// contains the module. These commands find the model, the job and the program.

namespace torchps {

std::vector<FlagSpec> EvaluateFlags();
std::vector<FlagSpec> PredictFlags();
std::vector<FlagSpec> GenerateFlags();

// Return the worker program's exit code, or psctl's for a bad flag.
int EvaluateCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);
int PredictCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);
int GenerateCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Return the run folder to which a model belongs, and the job file in it. This is the model's
// folder, or a folder above if the model is a checkpoint. Return "" if not found.
std::string GetRunFolder(const std::string& model);
std::string GetJobFile(const std::string& model);

}  // namespace torchps
