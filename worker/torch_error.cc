#include "worker/torch_error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace torchps {
namespace {

absl::Status Failed(absl::string_view what, absl::string_view message) {
  return absl::InternalError(
      absl::StrCat(what, " failed: ", message.substr(0, message.find('\n'))));
}

// Returns the demangled type of the current exception.
std::string NameOfThrown() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  // Thrown by code in another language.
  if (type == nullptr) return "an unknown type";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return name == nullptr ? type->name() : name.get();
}

}  // namespace

absl::Status TorchError(absl::string_view what, const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  return Failed(what, from_torch != nullptr ? from_torch->what_without_backtrace() : error.what());
}

absl::Status ThrownError(absl::string_view what) {
  try {
    throw;
  } catch (const std::exception& error) {
    return TorchError(what, error);
  } catch (const std::string& text) {
    return Failed(what, text);
  } catch (const char* text) {
    return Failed(what, text == nullptr ? "" : text);
  } catch (...) {
    return Failed(what, absl::StrCat("it threw a value of type ", NameOfThrown(),
                                     ", which is not a std::exception"));
  }
}

}  // namespace torchps
