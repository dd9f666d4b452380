#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// Looks up functions by name at run time, so that building torchps requires neither the library nor
// the library's headers. The caller must know the function types.
//
//   FoundFunctions library = FoundFunctions::InProcess("CUDA's run-time library");
//   library.Find("cudaHostRegister", &pin);
//   library.Find("cudaHostUnregister", &unpin);
//   if (!library.status().ok()) return library.status();
//
// Thread-compatible. Functions stay valid until the process ends. Libraries are never unloaded,
// because objects that they created may still be in use.
class FoundFunctions {
 public:
  // Searches the libraries that this process has already loaded. `what` names the library in
  // errors.
  static FoundFunctions InProcess(std::string what) {
    return FoundFunctions(nullptr, std::move(what));
  }
  // Loads `library` and searches it. Returns UNAVAILABLE with the loader's message if the file
  // cannot be found or loaded.
  static absl::StatusOr<FoundFunctions> Load(const std::string& library);

  // Sets `*function` to null if the function is missing.
  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(FindAny(name));
  }

  // Returns OK if all functions were found, otherwise UNAVAILABLE, naming the first missing one.
  const absl::Status& status() const { return status_; }

 private:
  // A null `library` searches the whole process.
  FoundFunctions(void* library, std::string what) : library_(library), what_(std::move(what)) {}

  void* FindAny(const char* name);

  void* library_;
  std::string what_;
  absl::Status status_;
};

}  // namespace torchps
