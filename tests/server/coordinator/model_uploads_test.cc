// Tests the permission of slots to upload model files, and the way of an uploaded best model.

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/join_request.h"
#include "tests/testing/plain_worker.h"
#include "torchps/checkpoint/safetensors.h"
#include "torchps/common/clock.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/server/server.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Worker = JobCoordinatorRig::Worker;

// Two workers, one epoch that is one lease.
JoinRequest OneLeaseJob() {
  JoinRequest request = JobCoordinatorRig::SmallJob();
  request.mutable_job()->mutable_training()->set_epochs(1);
  request.mutable_job()->mutable_training()->set_lease_batches(10);
  // Training then does not wait for the first checkpoint.
  request.mutable_job()->mutable_durability()->set_level(DurabilitySpec::LOG);
  return request;
}

absl::Status Upload(JobCoordinatorRig& rig, const Worker& worker, ModelFile file) {
  StoreModelRequest request;
  request.set_slot(worker.slot);
  request.set_incarnation(worker.incarnation);
  request.set_file(file);
  return rig.coordinator().AdmitUpload(request, rig.now()).status();
}

TEST(ModelUploadsTest, OnlyTheInitializerUploadsConstants) {
  JobCoordinatorRig rig(OneLeaseJob(), /*seed=*/1, /*has_directory=*/true);
  const Worker first = rig.NewWorker();
  const Worker second = rig.NewWorker();
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, first, MODEL_CONSTANTS))) << "while gathering";
  const auto told = rig.AwaitStart(first);
  rig.AwaitStart(second);
  ASSERT_EQ(Words(told), "INITIALIZE");
  EXPECT_TRUE(Upload(rig, first, MODEL_CONSTANTS).ok());
  const absl::Status refused = Upload(rig, second, MODEL_CONSTANTS);
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_EQ(std::string(refused.message()),
            "slot 1 was not asked to upload MODEL_CONSTANTS: it does not initialise the model");
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, first, MODEL_FINAL)));
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, first, MODEL_BEST)));

  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_TRUE(Upload(rig, first, MODEL_CONSTANTS).ok()) << "after a restart";
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, second, MODEL_CONSTANTS)));

  ASSERT_TRUE(rig.Leave(first).ok());
  EXPECT_TRUE(absl::IsAborted(Upload(rig, first, MODEL_CONSTANTS)));
  EXPECT_TRUE(Upload(rig, second, MODEL_CONSTANTS).ok()) << "it initialises now";
  rig.AwaitStart(second, /*initialized=*/true);
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, second, MODEL_CONSTANTS)));
}

TEST(ModelUploadsTest, OnlyTheEvaluatingSlotUploadsTheModel) {
  JobCoordinatorRig rig(OneLeaseJob(), /*seed=*/1, /*has_directory=*/true);
  std::vector<Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, workers[0], MODEL_BEST))) << "it trains";
  ASSERT_EQ(Words(rig.Ask(workers[0])), "evaluate 1");
  for (const ModelFile file : {MODEL_FINAL, MODEL_BEST}) {
    EXPECT_TRUE(Upload(rig, workers[0], file).ok());
    EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, workers[1], file)));
  }
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, workers[0], MODEL_CONSTANTS)));
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_TRUE(Upload(rig, workers[0], MODEL_BEST).ok()) << "after a restart";
  ASSERT_TRUE(rig.Report(workers[0], 1).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, workers[0], MODEL_FINAL))) << "it has reported";
}

TEST(ModelUploadsTest, AnEpochBeforeTheLastHasNoFinalModel) {
  JoinRequest job = OneLeaseJob();
  job.mutable_job()->mutable_training()->set_epochs(2);
  JobCoordinatorRig rig(job, /*seed=*/1, /*has_directory=*/true);
  std::vector<Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  ASSERT_EQ(Words(rig.Ask(workers[0])), "evaluate 1");
  EXPECT_TRUE(Upload(rig, workers[0], MODEL_BEST).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(rig, workers[0], MODEL_FINAL)));
}

// One worker without the data plane at a server that tests can restart.
class ModelUploadServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override { Start(); }

  void Start() {
    stub_ = nullptr;
    server_ = nullptr;
    Server::Options options;
    options.clock = &clock_;
    options.seed = ++seed_;
    options.files = &files_;
    options.dir = "/ps";
    options.log = [this](const std::string& line) { log_ += line + "\n"; };
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = Coordinator::NewStub(PlainChannel(server_->address()));
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&,
                                                                          Response*),
                                Request request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    Response response;
    const absl::Status status =
        FromGrpcStatus((stub_.get()->*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  template <typename Request>
  Request FromMe() {
    Request request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    return request;
  }

  // Trains the whole job up to the evaluation.
  void Train() {
    JoinRequest request = OneLeaseJob();
    request.mutable_job()->set_workers(1);
    request.set_server_count(1);
    const auto joined = Call(&Coordinator::Stub::Join, request);
    ASSERT_TRUE(joined.ok()) << joined.status();
    joined_ = *joined;
    auto start = Call(&Coordinator::Stub::AwaitStart, FromMe<AwaitStartRequest>());
    ASSERT_TRUE(start.ok()) << start.status();
    ASSERT_EQ(start->action(), AwaitStartReply::INITIALIZE);
    AwaitStartRequest initialized = FromMe<AwaitStartRequest>();
    initialized.set_initialized(true);
    initialized.set_initialization(start->initialization());
    start = Call(&Coordinator::Stub::AwaitStart, initialized);
    ASSERT_TRUE(start.ok()) << start.status();
    NextWorkRequest next = FromMe<NextWorkRequest>();
    next.set_call(1);
    const auto lease = Call(&Coordinator::Stub::NextWork, next);
    ASSERT_TRUE(lease.ok()) << lease.status();
    next.set_call(2);
    next.set_finished_lease(lease->lease().id());
    const auto evaluation = Call(&Coordinator::Stub::NextWork, next);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    ASSERT_EQ(evaluation->evaluate_epoch(), 1);
    ASSERT_TRUE(evaluation->has_keep_model());
  }

  absl::Status Upload(ModelFile file, const std::string& score) {
    SafetensorsHeader header;
    header.tensors.push_back({"weight", Dtype::kF32, {3}, 0, 12});
    header.metadata["score"] = score;
    const std::string json = FormatSafetensorsHeader(header);
    const uint64_t length = json.size();
    StoreModelRequest request = FromMe<StoreModelRequest>();
    request.set_file(file);
    request.mutable_data()->append(reinterpret_cast<const char*>(&length), sizeof(length));
    request.mutable_data()->append(json + std::string(12, '\0'));
    request.set_bytes(static_cast<int64_t>(request.data().size()));
    return Call(&Coordinator::Stub::StoreModel, request).status();
  }

  absl::Status Report(double accuracy) {
    ReportEvaluationRequest request = FromMe<ReportEvaluationRequest>();
    request.mutable_result()->set_epoch(1);
    request.mutable_result()->set_samples(10);
    MetricValue& metric = *request.mutable_result()->add_metric();
    metric.set_name("accuracy");
    metric.set_value(accuracy);
    return Call(&Coordinator::Stub::ReportEvaluation, request).status();
  }

  // Returns the names of the model files, without those of checkpoints and the coordinator.
  std::vector<std::string> Models() {
    std::vector<std::string> models;
    const std::vector<std::string> names = *files_.List("/ps");
    for (const std::string& name : names) {
      if (name.find(".safetensors") != name.npos) models.push_back(name);
    }
    return models;
  }

  FaultyFileSystem files_;
  SteadyClock clock_;
  std::string log_;
  uint64_t seed_ = 0;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Coordinator::Stub> stub_;
  JoinReply joined_;
};

TEST_F(ModelUploadServiceTest, TheReportPutsTheBestModelInPlace) {
  Train();
  const absl::Status constants = Upload(MODEL_CONSTANTS, "");
  EXPECT_TRUE(absl::IsPermissionDenied(constants)) << constants;
  ASSERT_TRUE(Upload(MODEL_BEST, "0.5").ok());
  EXPECT_THAT(Models(), ElementsAre("best.safetensors.slot-0.ready"));
  ASSERT_TRUE(Upload(MODEL_FINAL, "0.5").ok());
  ASSERT_TRUE(Report(0.5).ok());
  EXPECT_THAT(Models(), ElementsAre("best.safetensors", "model.safetensors"));
  EXPECT_TRUE(Report(0.5).ok()) << "its answer was lost";
  EXPECT_TRUE(absl::IsPermissionDenied(Upload(MODEL_BEST, "0.5")));
}

TEST_F(ModelUploadServiceTest, TheServerMayRestartBetweenTheUploadAndTheReport) {
  Train();
  ASSERT_TRUE(Upload(MODEL_BEST, "0.5").ok());
  Start();
  EXPECT_TRUE(Upload(MODEL_BEST, "0.5").ok()) << "its answer was lost";
  Start();
  ASSERT_TRUE(Report(0.5).ok());
  EXPECT_THAT(Models(), ElementsAre("best.safetensors"));
}

TEST_F(ModelUploadServiceTest, AModelWithAFalseScoreIsNotTheBest) {
  Train();
  ASSERT_TRUE(Upload(MODEL_BEST, "1e308").ok());
  ASSERT_TRUE(Report(0.5).ok());
  EXPECT_THAT(Models(), ElementsAre());
  // The log belongs to the server's threads.
  stub_ = nullptr;
  server_ = nullptr;
  EXPECT_THAT(
      log_,
      HasSubstr(
          "best.safetensors may be that of an earlier epoch: slot 0 uploaded a best model with "
          "score 1e+308, but reported score 0.5"));
}

TEST_F(ModelUploadServiceTest, TheFilesOfALeavingSlotAreRemoved) {
  Train();
  ASSERT_TRUE(Upload(MODEL_BEST, "0.5").ok());
  ASSERT_TRUE(Call(&Coordinator::Stub::LeaveJob, FromMe<LeaveJobRequest>()).ok());
  EXPECT_TRUE(Eventually([&] { return Models().empty(); }));
}

}  // namespace
}  // namespace torchps
