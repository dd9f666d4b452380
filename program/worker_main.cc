// ps_worker: one worker of a job whose model and data are among those that torchps brings along.

#include "program/train.h"
#include "worker/models/model_registry.h"

int main(int argc, char** argv) {
  return torchps::TrainMain(
      argc, argv,
      [](const torchps::JobSpec& job) -> absl::StatusOr<torchps::Task> {
        absl::StatusOr<torchps::DataSource> data = torchps::OpenData(job);
        if (!data.ok()) return data.status();
        return torchps::MakeTask(job, *std::move(data));
      },
      torchps::CutModule);
}
