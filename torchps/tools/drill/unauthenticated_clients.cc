#include "torchps/tools/drill/unauthenticated_clients.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

constexpr char kAnotherHost[] = "127.0.0.2";

// Returns the first 43 bytes of a TLS hello that declares 517 bytes.
std::string HalfAHello() {
  return absl::StrCat(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
                      std::string(32, 'r'));
}

std::string Frame(char type, char flags, char stream, absl::string_view payload) {
  const auto length = static_cast<char>(payload.size());  // payloads here are under 128 bytes
  return absl::StrCat(std::string{'\0', '\0', length, type, flags, '\0', '\0', '\0', stream},
                      payload);
}

// Encodes an HTTP/2 header; `index` refers to the name in the static table.
std::string Header(absl::string_view index, absl::string_view value) {
  return absl::StrCat(index, std::string(1, static_cast<char>(value.size())), value);
}

// Returns the HTTP/2 preface, settings, and headers of a Push call, without a frame.
std::string BeginningOfAPush() {
  constexpr char kSettings = 4, kHeaders = 1, kEndHeaders = 4;
  const std::string headers = absl::StrCat(
      "\x83\x86",  // :method POST, :scheme http
      Header("\x04", "/torchps.ParameterService/Push"), Header("\x01", "stranger"),
      Header("\x0f\x10", "application/grpc"), std::string(1, '\0'), Header("\x02te", "trailers"));
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(kSettings, 0, 0, ""),
                      Frame(kHeaders, kEndHeaders, 1, headers));
}

}  // namespace

std::vector<std::string> WordsOfStrangers() { return {"", HalfAHello(), BeginningOfAPush()}; }

int UnauthenticatedClients::Come(int server, const std::string& address, int of_each) {
  std::vector<FileDescriptor>& there = there_[server];
  int came = 0;
  for (const std::string& words : WordsOfStrangers()) {
    for (int i = 0; i < of_each; ++i) {
      absl::StatusOr<FileDescriptor> unauthenticated = BeginTcp(address, kAnotherHost);
      if (!unauthenticated.ok() || !WriteAll(*unauthenticated, words).ok()) continue;
      there.push_back(*std::move(unauthenticated));
      ++came;
    }
  }
  return came;
}

}  // namespace torchps
