#include "torchps/common/process/found_functions.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<FoundFunctions> FoundFunctions::Load(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded != nullptr) return FoundFunctions(loaded, library);
  const char* const why = dlerror();
  return absl::UnavailableError(why != nullptr ? why : absl::StrCat(library, " does not load"));
}

void* FoundFunctions::FindAny(const char* name) {
  void* const found = dlsym(library_ != nullptr ? library_ : RTLD_DEFAULT, name);
  if (found == nullptr) {
    status_.Update(absl::UnavailableError(absl::StrCat(what_, " has no ", name)));
  }
  return found;
}

}  // namespace torchps
