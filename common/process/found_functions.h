#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// Functions that are found by name where the program runs, so that building needs neither the
// library that has them nor its headers. The caller knows their types.
//
//   FoundFunctions library = FoundFunctions::InProcess("CUDA's run-time library");
//   library.Find("cudaHostRegister", &pin);
//   library.Find("cudaHostUnregister", &unpin);
//   if (!library.status().ok()) return library.status();
//
// Thread-compatible. What was found stays valid as long as the process: no library is unloaded, for
// what it has made may outlive all that we know of.
class FoundFunctions {
 public:
  // Of whatever this process has loaded by now, in words `what` that is.
  static FoundFunctions InProcess(std::string what) {
    return FoundFunctions(nullptr, std::move(what));
  }
  // Of the library with this name, which is loaded. UNAVAILABLE with the loader's words: it is not
  // to be found, or is no library.
  static absl::StatusOr<FoundFunctions> Load(const std::string& library);

  // Null if it is missing.
  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(FindAny(name));
  }

  // OK: all that was asked for was found. UNAVAILABLE names the first that was not.
  const absl::Status& status() const { return status_; }

 private:
  // Null: all of the process.
  FoundFunctions(void* library, std::string what) : library_(library), what_(std::move(what)) {}

  void* FindAny(const char* name);

  void* library_;
  std::string what_;
  absl::Status status_;
};

}  // namespace torchps
