// Tests identities in certificates, and the table of methods allowed for each role.

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/security/roles.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

TEST(IdentityTest, RoundTripsThroughAUri) {
  for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
    const Identity identity{"mnist_1.b-2", role, "slot-12"};
    const auto parsed = ParseIdentity(ToUri(identity));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, identity);
  }
  EXPECT_EQ(ToUri({"mnist", Role::kServer, "a"}), "torchps://mnist/server/a");
}

TEST(IdentityTest, RejectsMalformedUris) {
  for (const char* uri :
       {"", "torchps://", "torchps://job/worker", "torchps://job/worker/a/b",
        "torchps://job/boss/a", "torchps:///worker/a", "torchps://job/worker/",
        "http://job/worker/a", "torchps://j b/worker/a", "torchps://job/worker/slot-x",
        "torchps://job/worker/slot--1", "torchps://job/worker/slot-4096", "torchps://job/Worker/a",
        "xtorchps://job/worker/a"}) {
    EXPECT_EQ(ParseIdentity(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
  const std::string with_zero("torchps://job/worker/a\0b", 24);
  EXPECT_FALSE(ParseIdentity(with_zero).ok());
  EXPECT_FALSE(ParseIdentity("torchps://job/worker/" + std::string(65, 'a')).ok());
}

TEST(IdentityTest, TheNameOfAWorkerCertificateMayBindItToASlot) {
  EXPECT_EQ(BoundSlot({"j", Role::kWorker, "slot-3"}), 3);
  EXPECT_EQ(BoundSlot({"j", Role::kWorker, "any"}), std::nullopt);
  EXPECT_EQ(BoundSlot({"j", Role::kServer, "slot-3"}), std::nullopt);
}

TEST(MethodRolesTest, EveryMethodHasARule) {
  int methods = 0;
  for (const google::protobuf::FileDescriptor* file :
       {ServerStatus::descriptor()->file(), JobStatus::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const google::protobuf::MethodDescriptor* method = file->service(s)->method(m);
        const MethodRule* rule = FindMethodRule(method->input_type()->name());
        ASSERT_NE(rule, nullptr) << method->full_name();
        EXPECT_EQ(rule->method, method->name()) << "a request message serves one method only";
        EXPECT_TRUE(rule->server || rule->worker || rule->operators) << method->full_name();
        ++methods;
      }
    }
  }
  EXPECT_EQ(methods, 24);
  EXPECT_EQ(FindMethodRule("FormatDiskRequest"), nullptr);
}

// Repeats the table in docs/security.md. When the rules change, both must change.
TEST(MethodRolesTest, MatchTheDocumentedTable) {
  struct Row {
    const char* request;
    const char* roles;
  };
  const std::vector<Row> table = {
      {"HelloRequest", "w"},
      {"PushFrame", "w"},
      {"PullRequest", "w"},
      {"RenewRequest", "w"},
      {"LeaveRequest", "sw"},
      {"ServerStatusRequest", "swo"},
      {"WriteShardRequest", "s"},
      {"CommitCheckpointRequest", "s"},
      {"ShutdownRequest", "o"},
      {"JoinRequest", "w"},
      {"AwaitStartRequest", "w"},
      {"NextWorkRequest", "w"},
      {"RenewSlotRequest", "w"},
      {"ReportEvaluationRequest", "w"},
      {"LeaveJobRequest", "w"},
      {"TakeCheckpointRequest", "so"},
      {"JobStatusRequest", "swo"},
      {"RegisterServerRequest", "s"},
      {"LocateServersRequest", "swo"},
      {"StoreCopyRequest", "s"},
      {"DropCopiesRequest", "s"},
      {"ListCopiesRequest", "s"},
      {"ReadCopyRequest", "s"},
      {"LeaveRequest for good", "s"},
  };
  for (const Row& row : table) {
    const MethodRule* rule = FindMethodRule(row.request);
    ASSERT_NE(rule, nullptr) << row.request;
    const std::string roles = row.roles;
    for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
      const bool expected = roles.find(RoleName(role)[0]) != std::string::npos;
      const absl::Status status = CheckMethod(*rule, {"j", role, "a"}, std::nullopt);
      EXPECT_EQ(status.ok(), expected) << row.request << " by " << RoleName(role);
      if (expected) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(rule->method)));
      EXPECT_THAT(std::string(status.message()), HasSubstr(ToUri({"j", role, "a"})));
    }
  }
}

TEST(MethodRolesTest, ASlotCertificateCoversOnlyItsSlot) {
  const MethodRule& push = *FindMethodRule("PushFrame");
  const Identity bound{"j", Role::kWorker, "slot-1"};
  EXPECT_TRUE(CheckMethod(push, bound, 1).ok());
  EXPECT_TRUE(CheckMethod(push, bound, std::nullopt).ok());
  const absl::Status other = CheckMethod(push, bound, 0);
  EXPECT_EQ(other.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(other.message()), HasSubstr("cannot speak for slot 0, only for slot 1"));
  const absl::Status any = CheckMethod(push, bound, -1);
  EXPECT_THAT(std::string(any.message()), HasSubstr("--slot=1"));
  EXPECT_TRUE(CheckMethod(push, {"j", Role::kWorker, "any"}, 7).ok());
}

}  // namespace
}  // namespace torchps
