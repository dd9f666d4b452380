#include "tests/testing/replica_rig.h"

#include <ATen/Parallel.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "torch/utils.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/block_map.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/program/pipeline/member_exchange.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/pipeline/run_member.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/task.h"

namespace torchps {

ReplicaRig::ReplicaRig(Options options) : options_(std::move(options)) {
  absl::StatusOr<std::unique_ptr<InProcessCluster>> cluster =
      InProcessCluster::Start(options_.servers, &clock_);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  cluster_ = *std::move(cluster);
}

std::vector<std::vector<absl::Status>> ReplicaRig::Run(
    int replicas, const std::function<bool(const Moment& moment)>& kill) {
  struct Member {
    std::unique_ptr<MemberExchange> exchange;
    std::optional<MemberTask> task;
    std::unique_ptr<StopLatch> stop;
    absl::Status status;
  };
  std::vector<std::vector<Member>> members(replicas);
  for (std::vector<Member>& replica : members) {
    // Makes the modules before the threads start, because all threads share torch's random
    // generator.
    std::vector<ModelStage> stages = options_.make();
    std::vector<std::string> addresses;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      MemberExchange::Options exchange;
      exchange.stage = static_cast<int>(stage);
      exchange.stages = static_cast<int>(stages.size());
      exchange.certificates = options_.certificates;
      exchange.lease = options_.lease;
      exchange.clock = &clock_;
      auto stop = std::make_unique<StopLatch>();
      exchange.stop = stop.get();
      absl::StatusOr<std::unique_ptr<MemberExchange>> listening =
          MemberExchange::Listen(std::move(exchange));
      EXPECT_TRUE(listening.ok()) << listening.status();
      const bool is_last = stage + 1 == stages.size();
      replica.push_back({*std::move(listening),
                         MemberTask{stages[stage],
                                    is_last ? options_.last_objective.value_or(options_.objective)
                                            : options_.objective,
                                    options_.data},
                         std::move(stop),
                         {}});
      addresses.push_back(replica.back().exchange->address());
    }
    for (Member& member : replica) member.exchange->Connect(addresses);
  }
  std::vector<std::thread> threads;
  for (int replica = 0; replica < replicas; ++replica) {
    for (Member& member : members[replica]) {
      threads.emplace_back([this, &member, &kill, replica] {
        at::set_num_threads(1);
        WorkerOptions options;
        options.job = options_.job;
        options.micro_batches = options_.micro_batches;
        options.loader_threads = options_.loader_threads;
        options.servers = cluster_->endpoints();
        options.clock = &clock_;
        options.stop = member.stop.get();
        if (someone_died_) {
          options.slot = replica;
          options.predecessor_died = true;
        }
        MemberOptions with;
        with.exchange = member.exchange.get();
        with.on_phase = [&](MemberPhase phase, int64_t order) {
          const int stage = member.exchange->stage();
          if (kill == nullptr || !kill({replica, stage, phase, order})) return;
          member.exchange->Break();
          // Stops the member's calls, so that it does not wait for servers while the exception
          // unwinds.
          member.stop->Stop("killed by the test");
          throw MemberKilled();
        };
        try {
          member.status = RunMember(*member.task, std::move(options), with);
        } catch (const MemberKilled&) {
          member.status = absl::CancelledError("killed by the test");
        }
        // Destroys the model and the connections, as the end of a process would.
        member.task.reset();
        member.exchange = nullptr;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::vector<absl::Status>> outcomes(replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    for (const Member& member : members[replica]) {
      outcomes[replica].push_back(member.status);
      someone_died_ = someone_died_ || absl::IsCancelled(member.status);
    }
  }
  return outcomes;
}

absl::Status ReplicaRig::RunUndivided(int workers) {
  WorkerOptions options;
  options.job = options_.job;
  options.servers = cluster_->endpoints();
  options.clock = &clock_;
  options.stop = &stop_;
  // Makes the modules before the threads start, because all threads share torch's random generator.
  std::vector<Task> tasks;
  for (int worker = 0; worker < workers; ++worker) {
    tasks.emplace_back(Stages(options_.make()), options_.objective, options_.data);
  }
  std::vector<absl::Status> outcomes(tasks.size());
  std::vector<std::thread> threads;
  for (size_t worker = 0; worker < tasks.size(); ++worker) {
    threads.emplace_back([&options, &task = tasks[worker], &outcome = outcomes[worker]] {
      at::set_num_threads(1);
      outcome = RunWorker(task, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return absl::OkStatus();
}

torch::Tensor ReplicaRig::ReadServers() {
  Stages whole(options_.make());
  const absl::StatusOr<std::unique_ptr<FlatModel>> model = FlatModel::Create(
      *whole, torch::kCPU,
      [&](const std::string& name) { return GetGroup(options_.job.optimizer(), name); });
  EXPECT_TRUE(model.ok()) << model.status();
  ParameterClient::Options reader;
  reader.servers = cluster_->endpoints();
  reader.layout = (*model)->layout();
  reader.block_map =
      *BlockMap::Create(reader.layout, options_.job.wire().block_bytes(), options_.servers);
  reader.job = options_.job;
  reader.clock = &clock_;
  reader.stop = &stop_;
  const absl::StatusOr<std::unique_ptr<ParameterClient>> client =
      ParameterClient::Create(std::move(reader));
  EXPECT_TRUE(client.ok()) << client.status();
  const absl::StatusOr<PullResult> pulled =
      (*client)->Pull(/*clock=*/0, /*read_only=*/true, (*model)->values());
  EXPECT_TRUE(pulled.ok()) << pulled.status();
  const absl::Span<float> values = (*model)->values();
  return torch::from_blob(values.data(), {static_cast<int64_t>(values.size())}).clone();
}

ServerStatus ReplicaRig::GetStatus(int server) {
  ServerStatusRequest request;
  request.set_include_ledger(true);
  ServerStatus status;
  grpc::ClientContext context;
  EXPECT_TRUE(ParameterService::NewStub(cluster_->endpoints()[server].channel)
                  ->GetServerStatus(&context, request, &status)
                  .ok());
  return status;
}

JobStatus ReplicaRig::Job() {
  JobStatus status;
  grpc::ClientContext context;
  EXPECT_TRUE(Coordinator::NewStub(cluster_->endpoints()[0].channel)
                  ->GetJobStatus(&context, JobStatusRequest(), &status)
                  .ok());
  return status;
}

}  // namespace torchps
