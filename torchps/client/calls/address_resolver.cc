#include "torchps/client/calls/address_resolver.h"

#include "absl/time/clock.h"
#include "grpcpp/channel.h"
#include "torchps/proto/coordinator.grpc.pb.h"

namespace torchps {
namespace {

// A silence of this length starts a lookup. Most restarts at the same address are shorter.
constexpr absl::Duration kMissedAfter = absl::Seconds(1);

}  // namespace

AddressResolver::AddressResolver(Options options) : options_(std::move(options)) {
  MutexLock lock(&mutex_);
  for (const AddressSource& source : options_.servers) {
    const absl::StatusOr<std::string> address = source.Find();
    Entry entry;
    entry.endpoint =
        ConnectToServer(static_cast<int>(entries_.size()), address.ok() ? *address : source.text(),
                        options_.certificates);
    entries_.push_back(std::move(entry));
  }
}

AddressResolver::~AddressResolver() {
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (asking_ != nullptr) asking_->TryCancel();
    changed_.SignalAll();
    std::swap(thread, thread_);
  }
  if (thread.joinable()) thread.join();
}

ServerEndpoint AddressResolver::Find(int index) {
  MutexLock lock(&mutex_);
  return entries_[index].endpoint;
}

void AddressResolver::Miss(int index, const std::string& address) {
  MutexLock lock(&mutex_);
  Entry& entry = entries_[index];
  if (stopping_ || entry.endpoint.address != address) return;
  const absl::Duration now = clock_.Now();
  if (now - entry.looked_at < options_.pause) return;
  entry.looked_at = now;
  missed_.insert(index);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.Signal();
}

void AddressResolver::Run() {
  while (true) {
    int index = 0;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && missed_.empty()) changed_.Wait(&mutex_);
      if (stopping_) return;
      index = *missed_.begin();
      missed_.erase(missed_.begin());
    }
    Resolve(index);
  }
}

void AddressResolver::Resolve(int index) {
  const std::string here = Find(index).address;
  for (const std::string& candidate : Candidates(index)) {
    if (candidate == here) continue;
    ServerEndpoint there = ConnectToServer(index, candidate, options_.certificates);
    const bool listens =
        there.channel->WaitForConnected(absl::ToChronoTime(absl::Now() + options_.timeout));
    MutexLock lock(&mutex_);
    if (stopping_) return;
    if (!listens) continue;
    entries_[index].endpoint = std::move(there);
    return;
  }
}

std::vector<std::string> AddressResolver::Candidates(int index) {
  std::vector<std::string> candidates;
  if (index > 0) {
    if (const std::optional<std::string> told = AskCoordinator(index)) candidates.push_back(*told);
  }
  const absl::StatusOr<std::string> given = options_.servers[index].Find();
  if (given.ok()) candidates.push_back(*given);
  return candidates;
}

std::optional<std::string> AddressResolver::AskCoordinator(int index) {
  const std::unique_ptr<Coordinator::Stub> stub = Coordinator::NewStub(Find(0).channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  {
    MutexLock lock(&mutex_);
    if (stopping_) return std::nullopt;
    asking_ = &context;
  }
  LocateServersReply reply;
  const grpc::Status asked = stub->LocateServers(&context, LocateServersRequest(), &reply);
  MutexLock lock(&mutex_);
  asking_ = nullptr;
  if (!asked.ok() || reply.server_size() != servers()) return std::nullopt;
  const std::string& address = reply.server(index).address();
  if (!CheckServerAddress(address).ok()) return std::nullopt;
  return address;
}

std::vector<ServerEndpoint> GetEndpoints(const std::shared_ptr<AddressResolver>& book) {
  std::vector<ServerEndpoint> endpoints;
  for (int index = 0; index < book->servers(); ++index) {
    endpoints.push_back(book->Find(index));
    endpoints.back().book = book;
  }
  return endpoints;
}

ServerEndpoint GetLatest(const ServerEndpoint& endpoint) {
  if (endpoint.book == nullptr) return endpoint;
  ServerEndpoint latest = endpoint.book->Find(endpoint.index);
  latest.book = endpoint.book;
  return latest;
}

std::string GetAddress(const ServerEndpoint& endpoint) {
  const std::string address = GetLatest(endpoint).address;
  return IsAddressFile(address) ? "" : address;
}

std::optional<ServerEndpoint> MovedFrom(const ServerEndpoint& endpoint, absl::Duration silence) {
  ServerEndpoint latest = GetLatest(endpoint);
  if (latest.address != endpoint.address) return latest;
  if (endpoint.book != nullptr && (silence >= kMissedAfter || IsAddressFile(endpoint.address))) {
    endpoint.book->Miss(endpoint.index, endpoint.address);
  }
  return std::nullopt;
}

}  // namespace torchps
