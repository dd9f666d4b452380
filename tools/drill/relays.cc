#include "tools/drill/relays.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<std::string> Relays::Open(int worker, const std::vector<std::string>& servers) {
  std::string ways;
  for (size_t i = 0; i < servers.size(); ++i) {
    Relay& relay = relays_[{worker, static_cast<int>(i)}];
    if (relay.proxy == nullptr) {
      FaultProxy::Options options;
      options.target = servers[i];
      auto proxy = FaultProxy::Start(std::move(options));
      if (!proxy.ok()) return proxy.status();
      relay.proxy = *std::move(proxy);
    }
    absl::StrAppend(&ways, i > 0 ? "," : "", servers[i], "=", relay.proxy->address());
  }
  return ways;
}

void Relays::Cut(const std::vector<NetworkLink>& links) {
  for (const NetworkLink& link : links) {
    const auto found = relays_.find(link);
    if (found != relays_.end() && found->second.cuts++ == 0)
      found->second.proxy->SetBlackHole(true);
  }
}

void Relays::Join(const std::vector<NetworkLink>& links) {
  for (const NetworkLink& link : links) {
    const auto found = relays_.find(link);
    if (found == relays_.end() || found->second.cuts == 0) continue;
    if (--found->second.cuts == 0) found->second.proxy->SetBlackHole(false);
  }
}

void Relays::Reset(const std::vector<NetworkLink>& links) {
  for (const NetworkLink& link : links) {
    const auto found = relays_.find(link);
    if (found != relays_.end()) found->second.proxy->ResetAll();
  }
}

}  // namespace torchps
