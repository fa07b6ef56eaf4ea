/// dttrain: trains an image classifier, alone or as a worker of dtlaunch.
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/version.h"
#include "trainer/checkpoint.h"
#include "trainer/data/iterator.h"
#include "trainer/models/models.h"
#include "trainer/module.h"
#include "trainer/worker_log.h"

namespace {

namespace po = boost::program_options;
using dt::ErrorKind;
using dt::fail;
using dt::Result;

enum ExitCode { kDone = 0, kFailed = 1, kUsage = 2, kNoDevice = 3 };

struct Options {
  dt::train::NetworkSpec network;
  std::string gpus;
  std::string work_load_list;
  std::vector<dt::train::DeviceNumber> devices;  ///< --gpus
  std::vector<double> loads;                     ///< --work-load-list
  std::string kv_store;
  dt::train::BatchOptions batch;
  dt::train::FitOptions fit;
  std::string lr_step_epochs;
  std::string optimizer;
  float mom = 0;
  float wd = 0;
  std::optional<float> gc_threshold;  ///< None: the codec's default.
  std::optional<std::uint32_t> load_epoch;
  std::string data;
  std::string dataset;
  std::string metrics_json;
  std::string log;
  bool no_eval = false;
  bool no_overlap = false;
};

std::string default_kv_store() {
  return std::getenv("DT_AGENT_SOCKET") != nullptr ? "dist_sync" : "local";
}

po::options_description describe(Options& o) {
  const auto text = [](std::string& to, const char* name) {
    return po::value(&to)->value_name(name);
  };
  const auto number = [](auto& to, auto normally) {
    return po::value(&to)->default_value(normally)->value_name("N");
  };
  const auto real = [](float& to, float normally) {
    return po::value(&to)->default_value(normally, fmt::format("{}", normally))->value_name("X");
  };
  po::options_description all("dttrain [options]: train an image classifier", 80, 44);
  auto add = all.add_options();
  add("network", text(o.network.name, "NAME")->default_value("lenet"), "lenet, mlp or resnet");
  add("num-layers", number(o.network.num_layers, 20U), "of a resnet: 20, 56, 110, any 6n+2");
  add("dataset", text(o.dataset, "NAME"),
      "mnist, cifar10 or generated (mnist if --data is given, else generated digits)");
  add("data", text(o.data, "DIR"), "folder of the data set's files, plain or .gz");
  add("samples", number(o.batch.per_epoch, 0U), "samples of an epoch, others each time; 0: all");
  add("batch-size", number(o.batch.per_worker, 64U), "samples a step of one worker");
  add("global-batch-size", number(o.batch.global, 0U),
      "samples a step of all workers together, instead; the learning rate then stays");
  add("num-epochs", number(o.fit.num_epochs, 10U), "train until this epoch");
  add("lr", real(o.fit.learning_rate.rate, 0.03F),
      "learning rate for the number of workers at the start");
  add("lr-factor", real(o.fit.learning_rate.factor, 0.1F), "multiply it by this ...");
  add("lr-step-epochs", text(o.lr_step_epochs, "E,E..."), "... at these epochs");
  add("lr-smooth-steps", number(o.fit.learning_rate.smooth_steps, 32U),
      "steps over which it moves when the number of workers changed");
  add("mom", real(o.mom, 0.9F), "momentum");
  add("wd", real(o.wd, 1e-4F), "weight decay");
  add("optimizer", text(o.optimizer, "SPEC"),
      "instead of sgd: the kvstore's optimizer, with --mom and --wd where they are given, or with "
      "words of its own");
  add("gc-type", text(o.fit.compression, "CODEC")->default_value("none"),
      "compress pushed gradients: none, 2bit, fp16 or bf16; never through shared memory");
  add("gc-threshold", po::value<float>()->value_name("X"), "of 2bit, what is sent (0.5)");
  add("augment", po::bool_switch(&o.batch.augment), "move and mirror the training pictures");
  add("no-eval", po::bool_switch(&o.no_eval), "do not measure the test accuracy");
  add("kv-store", text(o.kv_store, "TYPE")->default_value(default_kv_store()),
      "local, dist_sync, dist_async (dist_sync under dtlaunch)");
  add("no-overlap", po::bool_switch(&o.no_overlap),
      "send gradients after backward and wait for the new weights, instead of both meanwhile");
  add("gpus", text(o.gpus, "0,1..."),
      "train on these GPUs, each with a part of every batch (cpu,cpu: as many parts on the CPU)");
  add("work-load-list", text(o.work_load_list, "X,X..."),
      "what the devices of --gpus get of a batch, to each other (all the same)");
  add("seed", number(o.network.seed, std::uint64_t{1}), "of initial weights and order of samples");
  add("model-prefix", text(o.fit.model_prefix, "PREFIX"),
      "save PREFIX-0001.safetensors after the first epoch, and so on (the lead worker does)");
  add("load-epoch", po::value<std::uint32_t>()->value_name("N"),
      "go on from PREFIX-N.safetensors, at epoch N");
  add("disp-batches", number(o.fit.disp_batches, 50U), "a progress line every N steps; 0: none");
  add("metrics-json", text(o.metrics_json, "FILE"),
      "append a JSON line after every epoch (the lead worker does)");
  add("log", text(o.log, "FILE"),
      "JSON lines of every boundary and step; %i becomes the worker id");
  add("help", "this text");
  add("version", "version, commit and libraries");
  return all;
}

/// None: it has printed the help or the version.
Result<std::optional<Options>> parse(int argc, char** argv) {
  Options o;
  const auto description = describe(o);
  po::variables_map values;
  try {
    const po::positional_options_description none;
    po::store(po::command_line_parser(argc, argv).options(description).positional(none).run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    return fail(ErrorKind::kInvalid, "{} (dttrain --help lists the options)", error.what());
  }
  if (values.count("help") != 0) {
    std::cout << description
              << "\nExit codes: 0 done, or released; 1 training failed; 2 wrong options;\n"
                 "3 no such device.\n";
    return std::nullopt;
  }
  if (values.count("version") != 0) {
    std::cout << dt::version_text("dttrain") << '\n';
    return std::nullopt;
  }
  if (values.count("load-epoch") != 0) o.load_epoch = values["load-epoch"].as<std::uint32_t>();
  if (o.load_epoch && o.fit.model_prefix.empty())
    return fail(ErrorKind::kInvalid, "--load-epoch needs --model-prefix");
  if (o.batch.per_worker == 0) return fail(ErrorKind::kInvalid, "--batch-size must not be 0");
  if (o.fit.compression == "1bit")
    return fail(ErrorKind::kInvalid, "--gc-type: 1bit is gone since 0.1.0: take 2bit or fp16");
  const std::string_view codecs[] = {"none", "2bit", "fp16", "bf16"};
  if (std::find(std::begin(codecs), std::end(codecs), o.fit.compression) == std::end(codecs))
    return fail(ErrorKind::kInvalid, "--gc-type: '{}' is none of none, 2bit, fp16, bf16",
                o.fit.compression);
  if (values.count("gc-threshold") != 0) o.gc_threshold = values["gc-threshold"].as<float>();
  if (o.gc_threshold && (!std::isfinite(*o.gc_threshold) || *o.gc_threshold <= 0))
    return fail(ErrorKind::kInvalid, "--gc-threshold must be above 0");
  auto epochs = dt::train::parse_epochs(o.lr_step_epochs);
  if (!epochs) return tl::unexpected(epochs.error().at("--lr-step-epochs"));
  o.fit.learning_rate.factor_epochs = std::move(*epochs);
  auto devices = dt::train::parse_devices(o.gpus);
  if (!devices) return tl::unexpected(devices.error());
  o.devices = std::move(*devices);
  auto loads = dt::train::parse_loads(o.work_load_list, o.devices.size());
  if (!loads) return tl::unexpected(loads.error());
  o.loads = std::move(*loads);
  o.fit.learning_rate.follows_world = o.batch.global == 0;
  o.batch.seed = o.network.seed;
  o.batch.evaluates = !o.no_eval;
  if (o.dataset.empty()) o.dataset = o.data.empty() ? "generated" : "mnist";
  for (const auto& [name, rate] : {std::pair("--lr", o.fit.learning_rate.rate),
                                   std::pair("--lr-factor", o.fit.learning_rate.factor)})
    if (!std::isfinite(rate) || rate <= 0)
      return fail(ErrorKind::kInvalid, "{} must be a number above 0", name);
  std::string words;
  if (o.optimizer.empty() || !values["mom"].defaulted())
    words += fmt::format(" momentum={}", o.mom);
  if (o.optimizer.empty() || !values["wd"].defaulted())
    words += fmt::format(" weight_decay={}", o.wd);
  if (!words.empty() && o.optimizer.find('=') != std::string::npos)
    return fail(ErrorKind::kInvalid,
                "--mom and --wd beside --optimizer '{}', which has words of its own: add{}",
                o.optimizer, words);
  o.fit.optimizer = (o.optimizer.empty() ? "sgd" : o.optimizer) + words;
  if (o.gc_threshold && o.fit.compression == "2bit")
    o.fit.compression += fmt::format(" threshold={}", *o.gc_threshold);
  o.fit.overlap = !o.no_overlap;
  o.fit.begin_epoch = o.load_epoch.value_or(0);
  if (o.load_epoch)
    o.fit.optimizer_state = dt::train::optimizer_path(o.fit.model_prefix, *o.load_epoch).string();
  return o;
}

/// Waiting OpenMP threads spin by default; on a busy machine that costs several times the work.
/// libgomp reads the variable when it is loaded, so the program begins again with it set.
void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  execv("/proc/self/exe", argv);  // if it fails, training is slower
}

/// One line of --metrics-json.
void append_metrics(const std::string& path, const dt::train::EpochEnd& end) {
  const auto rate = [](std::uint64_t samples, double seconds) {
    return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
  };
  const nlohmann::json line = {{"epoch", end.epoch},
                               {"num_workers", end.num_workers},
                               {"samples_per_s", rate(end.job_samples, end.job_seconds)},
                               {"worker_samples_per_s", rate(end.samples, end.seconds)},
                               {"seconds", end.seconds},
                               {"train_accuracy", end.train_accuracy},
                               {"train_loss", end.train_loss},
                               {"validation_accuracy", end.eval_accuracy},
                               {"validation_loss", end.eval_loss},
                               {"learning_rate", end.learning_rate}};
  std::ofstream file(path, std::ios::app);
  file << line.dump() + "\n" << std::flush;
  if (!file) std::cerr << "dttrain: cannot append to " << path << '\n';
}

/// Checks before training, not after the first epoch, that checkpoints can be written.
Result<void> make_folder_of(const std::string& model_prefix) {
  const auto folder = std::filesystem::path(model_prefix).parent_path();
  std::error_code ec;
  if (folder.empty() || std::filesystem::is_directory(folder, ec)) return {};
  std::filesystem::create_directories(folder, ec);
  if (!ec) return {};
  return fail(ErrorKind::kIo, "--model-prefix: cannot create {}: {}", folder.string(),
              ec.message());
}

Result<dtkv::KVStore> open_kvstore(const std::string& type) {
  try {
    return dtkv::KVStore(type);
  } catch (const dtkv::Error& error) {
    return fail(ErrorKind::kUnavailable, "--kv-store {}: {}", type, error.what());
  }
}

Result<dt::train::FitEnd> train(Options o) {
  auto data = dt::train::load_data(o.dataset, o.data);
  if (!data) return tl::unexpected(data.error());
  o.network.channels = data->train.channels;
  o.network.height = data->train.height;
  o.network.width = data->train.width;
  o.network.classes = data->train.classes;
  std::vector<std::shared_ptr<dt::train::Network>> replicas;
  for (const dt::train::DeviceNumber device : o.devices) {
    auto network = dt::train::make_network(o.network);
    if (!network) return tl::unexpected(network.error());
    dt::train::move_to(**network, device);
    replicas.push_back(std::move(*network));
  }
  dt::train::Module module(std::move(replicas), o.loads);
  if (auto ok = make_folder_of(o.fit.model_prefix); !ok) return tl::unexpected(ok.error());
  if (o.load_epoch) {
    const auto path = dt::train::checkpoint_path(o.fit.model_prefix, *o.load_epoch);
    if (auto ok = module.load(path); !ok) return tl::unexpected(ok.error());
  }
  auto kv = open_kvstore(o.kv_store);
  if (!kv) return tl::unexpected(kv.error());
  const std::uint32_t worker_id = kv->worker_id();
  fmt::print("dttrain: {} ({} parameters) on {} ({} + {} pictures), kvstore {}, worker {}\n",
             o.network.name, module.num_parameters(), data->source, data->train.size(),
             data->test.size(), kv->type(), worker_id);
  std::fflush(stdout);

  std::optional<dt::train::EventLog> log;
  if (!o.log.empty()) {
    auto opened = dt::train::EventLog::open(o.log, worker_id);
    if (!opened) return tl::unexpected(opened.error());
    log = std::move(*opened);
  }
  if (log) {
    o.fit.on_boundary = [&](const dt::train::BoundaryEnd& end) { log->boundary(end); };
    o.fit.on_batch_end = [&](const dt::train::BatchEnd& end) { log->step(end); };
  }
  o.fit.on_epoch_end = [&](const dt::train::EpochEnd& end) {
    if (log) log->epoch(end);
    if (end.is_lead && !o.metrics_json.empty()) append_metrics(o.metrics_json, end);
  };
  dt::train::DatasetIterator iterators(*data, o.batch);
  return module.fit(*kv, iterators, o.fit);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) {
    std::cerr << "dttrain: " << options.error().message << '\n';
    return kUsage;
  }
  if (!*options) return kDone;
  if ((*options)->devices.front() >= 0) {
    const auto why = dt::train::why_not((*options)->devices);
    if (!why.empty()) {
      std::cerr << "dttrain: --gpus " << (*options)->gpus << ": " << why
                << "; leave --gpus out to train on the CPU\n";
      return kNoDevice;
    }
  }
  wait_passively(argv);
  dt::train::set_threads_from_environment();
  const auto end = train(**options);
  if (!end) {
    std::cerr << "dttrain: " << end.error().message << '\n';
    return kFailed;
  }
  if (*end == dt::train::FitEnd::kLeft) std::cout << "dttrain: released; done" << std::endl;
  return kDone;
}
