#include "bench/data_plane/worker.h"

#include <time.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace torchps {
namespace {

absl::StatusOr<std::vector<int64_t>> Numbers(const std::vector<absl::string_view>& words) {
  std::vector<int64_t> numbers;
  for (const absl::string_view word : words) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(word, &number)) {
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not a number"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<Order> ParseOrder(const std::string& line) {
  std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  Order order;
  order.case_name = std::string(words.front());
  words.erase(words.begin());
  const auto numbers = Numbers(words);
  if (!numbers.ok()) return numbers.status();
  if (numbers->size() != 3) return absl::InvalidArgumentError("an order needs three numbers");
  order.start_ns = (*numbers)[0];
  order.duration_ns = (*numbers)[1];
  order.least = (*numbers)[2];
  return order;
}

std::string ToLine(const Account& account) {
  return absl::StrCat(account.begun, " ", account.counted_ns, " ",
                      absl::StrJoin(account.latencies_ns, " "));
}

void SleepUntil(int64_t ns) {
  const timespec time = {static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

absl::StatusOr<Account> Carry(const Order& order, Operation& operation) {
  Account account;
  SleepUntil(order.start_ns);
  const int64_t end_ns = order.start_ns + order.duration_ns;
  int64_t begin = NowNs();
  while (begin < end_ns || account.begun < order.least) {
    if (absl::Status status = operation.Run(); !status.ok()) return status;
    const int64_t end = NowNs();
    ++account.begun;
    if (end <= end_ns || account.begun <= order.least) {
      account.latencies_ns.push_back(end - begin);
      account.counted_ns = end - order.start_ns;
    }
    begin = end;
  }
  return account;
}

}  // namespace

int64_t NowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string ToLine(const Order& order) {
  return absl::StrCat(order.case_name, " ", order.start_ns, " ", order.duration_ns, " ",
                      order.least);
}

absl::StatusOr<Account> ParseAccount(absl::string_view line) {
  const auto numbers = Numbers(absl::StrSplit(line, ' ', absl::SkipEmpty()));
  if (!numbers.ok()) return numbers.status();
  if (numbers->size() < 3) return absl::InvalidArgumentError("an account must count an operation");
  Account account;
  account.begun = (*numbers)[0];
  account.counted_ns = (*numbers)[1];
  account.latencies_ns.assign(numbers->begin() + 2, numbers->end());
  return account;
}

absl::Status ObeyOrders(Stage& stage) {
  std::map<std::string, std::unique_ptr<Operation>> operations;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<Order> order = ParseOrder(line);
    if (!order.ok()) return order.status();
    std::unique_ptr<Operation>& operation = operations[order->case_name];
    if (operation == nullptr) {
      absl::StatusOr<std::unique_ptr<Operation>> prepared = stage.Prepare(order->case_name);
      if (!prepared.ok()) return prepared.status();
      operation = *std::move(prepared);
    }
    const absl::StatusOr<Account> account = Carry(*order, *operation);
    if (!account.ok()) return account.status();
    std::cout << ToLine(*account) << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace torchps
