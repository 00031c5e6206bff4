"""Excerpts of logs in the forms of real programs, written for the tests; recorded logs lie in tests/live_logs."""

# ruff: noqa: E501, ISC004  (lines of logs are as long as they are)

TRAIN = '  File "/srv/run/train.py", line'
SITE = "/opt/venv/lib/python3.11/site-packages"


def ranked(rank, *lines):
    """Return lines with the prefix of a rank."""
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def traceback(exception, *frames):
    """Return the lines of a traceback with (file, line, function, code) frames."""
    shown = [
        line for file, at, name, code in frames for line in (f'  File "{file}", line {at}, in {name}', f"    {code}")
    ]
    return ["Traceback (most recent call last):", *shown, *exception.split("\n")]


MAIN = ("/srv/run/train.py", 210, "<module>", "main()")
STEP = ("/srv/run/train.py", 150, "main", "loss = model(batch).loss")
FORWARD = (f"{SITE}/torch/nn/modules/module.py", 1775, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)")
BACKWARD = (f"{SITE}/torch/_tensor.py", 647, "backward", "torch.autograd.backward(")
ENGINE = (
    f"{SITE}/torch/autograd/graph.py",
    829,
    "_engine_run_backward",
    "return Variable._execution_engine.run_backward(",
)
OPTIMIZER = (f"{SITE}/torch/optim/adamw.py", 232, "step", "adamw(")
REDUCE = (f"{SITE}/torch/distributed/distributed_c10d.py", 2810, "all_reduce", "work.wait()")
LOADER = (f"{SITE}/torch/utils/data/dataloader.py", 733, "__next__", "data = self._next_data()")
WORKER = (f"{SITE}/torch/utils/data/_utils/worker.py", 349, "_worker_loop", "data = fetcher.fetch(index)")


def watchdog(rank, sequence, completed, second=14, group="0(default_pg)", own=None):
    """Return what NCCL's watchdog writes of a rank that waits; in a group it has a number of its own."""
    own = rank if own is None else own
    head = f"[rank{rank}]:[E314 09:30:{second}.123456789"
    head = head.replace("E314", "E0314")
    return (
        f"{head} ProcessGroupNCCL.cpp:632] [Rank {own}] Watchdog caught collective operation timeout: WorkNCCL("
        f"SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194304, Timeout(ms)=600000) ran for 600041"
        " milliseconds before timing out.\n"
        f"{head} ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID {group} Rank {own}] failure detected by watchdog at"
        f" work sequence id: {sequence} PG status: last enqueued work: {sequence}, last completed work: {completed}\n"
        f"{head} ProcessGroupNCCL.cpp:681] Stack trace of the failed collective not found, potentially because"
        " FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.\n"
        f"{head} ProcessGroupNCCL.cpp:695] [Rank {own}] Some NCCL operations have failed or timed out. Due to the"
        " asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"[rank{rank}]: terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"[rank{rank}]:   what():  [PG ID 0 PG GUID {group} Rank {own}] Process group watchdog thread terminated"
        f" with exception: [Rank {own}] Watchdog caught collective operation timeout\n"
    )


def progress(first, last, *, minute=20):
    """Return Megatron-LM's lines of iterations."""
    return "".join(
        f" [2026-03-14 09:{minute}:{step % 60:02d}] iteration {step:8d}/  500000 | consumed samples: {step * 1024:12d} |"
        f" elapsed time per iteration (ms): 812.4 | learning rate: 3.000000E-04 | global batch size:  1024 |"
        f" lm loss: 2.31{step % 10}E+00 | loss scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 |"
        f" number of nan iterations:   0 |\n"
        for step in range(first, last)
    )


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.10 GiB of"
    " which 1.44 GiB is free. Including non-PyTorch memory, this process has 77.65 GiB memory in use."
)
BOTO = 'botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "https://data.s3.amazonaws.com/a?X-Amz-Signature=8c1f"'

EXCERPTS = {
    "nccl-desync": progress(1, 5) + "".join(watchdog(rank, 117 if rank == 5 else 118, 116) for rank in (0, 1, 5, 6)),
    "nccl-silent-rank": "launch: world_size=4, Rank 3 of 4 on gpu-17\n"
    + progress(1, 5)
    + "".join(watchdog(rank, 118, 117) for rank in (0, 1, 2)),
    "cuda-oom": progress(1, 5)
    + ranked(3, *traceback(OOM, MAIN, STEP, FORWARD))
    + "".join(watchdog(rank, 118, 117) for rank in (0, 1, 2)),
    "oom-in-backward": ranked(1, *traceback(OOM, MAIN, BACKWARD, ENGINE)),
    "time-limit": progress(1, 30)
    + "slurmstepd: error: *** JOB 88213 ON gpu-11 CANCELLED AT 2026-03-14T09:31:00 DUE TO TIME LIMIT ***\n"
    "slurmstepd: error: *** STEP 88213.0 ON gpu-11 CANCELLED AT 2026-03-14T09:31:00 DUE TO TIME LIMIT ***\n"
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    "srun: error: gpu-12: tasks 8-15: Terminated\n",
    "preempted": progress(1, 5)
    + "slurmstepd: error: *** JOB 88214 ON gpu-11 CANCELLED AT 2026-03-14T09:31:00 DUE TO PREEMPTION ***\n"
    "[rank0]: 2026-03-14 09:31:00 INFO Received SIGTERM, saving a checkpoint before the exit\n"
    + ranked(0, *traceback("KeyboardInterrupt", MAIN, STEP)),
    "scancel": progress(1, 5) + "slurmstepd: error: *** JOB 9 ON gpu-3 CANCELLED AT 2026-03-14T09:31:00 ***\n",
    "node-failure": progress(1, 5) + "srun: error: Node failure on gpu-14\n"
    "slurmstepd: error: *** STEP 88215.0 ON gpu-11 CANCELLED AT 2026-03-14T09:40:02 DUE TO NODE FAILURE, SEE SLURMCTLD"
    " LOG FOR DETAILS ***\n" + watchdog(0, 200, 199),
    "slurm-oom": progress(1, 5)
    + "slurmstepd: error: Detected 1 oom_kill event in StepId=88216.0. Some of the step tasks have been OOM Killed.\n"
    "srun: error: gpu-07: task 9: Out Of Memory\nsrun: Terminating StepId=88216.0\n"
    "slurmstepd: error: *** STEP 88216.0 ON gpu-06 CANCELLED AT 2026-03-14T09:41:00 ***\n"
    "srun: error: gpu-06: tasks 0-7: Terminated\n",
    "kernel-oom": progress(1, 5)
    + "W0314 09:31:07.101000 4100 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 4201 closing"
    " signal SIGTERM\n"
    "E0314 09:31:07.313000 4100 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank:"
    " 2 (pid: 4203) of binary: /opt/venv/bin/python\n"
    "Mar 14 09:31:08 gpu-02 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=4203,uid=1000\n"
    "Mar 14 09:31:08 gpu-02 kernel: Memory cgroup out of memory: Killed process 4203 (python) total-vm:81234560kB,"
    " anon-rss:61234560kB, file-rss:1024kB, shmem-rss:0kB, UID:1000 pgtables:120000kB oom_score_adj:0\n",
    "xid": progress(1, 5)
    + "[Sat Mar 14 09:30:59 2026] NVRM: Xid (PCI:0000:9d:00): 79, pid=4203, name=python, GPU has fallen off the bus.\n"
    + ranked(
        2,
        *traceback(
            "RuntimeError: CUDA error: unspecified launch failure\nCUDA kernel errors might be"
            " asynchronously reported at some other API call.",
            MAIN,
            STEP,
            FORWARD,
        ),
    )
    + watchdog(0, 118, 117)
    + "[Sat Mar 14 09:31:09 2026] NVRM: Xid (PCI:0000:9e:00): 45, pid=4204, name=python, Ch 00000008\n",
    "ecc": ranked(
        6, *traceback("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", MAIN, BACKWARD, ENGINE)
    ),
    "illegal-access": progress(1, 5) + "[rank4]: terminate called after throwing an instance of 'c10::Error'\n"
    "[rank4]:   what():  CUDA error: an illegal memory access was encountered\n" + watchdog(0, 118, 117),
    "device-assert": ranked(
        0,
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: block: [12,0,0], thread: [3,0,0]"
        " Assertion `srcIndex < srcSelectDimSize` failed.",
    )
    + ranked(0, *traceback("RuntimeError: CUDA error: device-side assert triggered", MAIN, STEP, FORWARD)),
    "interleaved": progress(1, 5)
    + "".join(
        f"{one}\n{other}\n"
        for one, other in zip(
            traceback("AssertionError: labels out of range", MAIN, STEP, FORWARD),
            traceback("RuntimeError: NCCL communicator was aborted on rank 1.", MAIN, STEP, REDUCE),
            strict=True,
        )
    ),
    "srun-label": "".join(f"{rank}: loading, rank {rank} of 2\n" for rank in (0, 1))
    + "0: "
    + progress(1, 2)
    + "".join(
        f"1: {line}\n"
        for line in traceback("TypeError: forward() got an unexpected keyword argument 'mask'", MAIN, STEP, FORWARD)
    )
    + "srun: error: gpu-02: task 1: Exited with exit code 1\n"
    "slurmstepd: error: *** STEP 77.0 ON gpu-01 CANCELLED AT 2026-03-14T09:31:00 ***\n",
    "optimizer": ranked(
        0,
        *traceback(
            "RuntimeError: The size of tensor a (16) must match the size of tensor b (8): size mismatch",
            MAIN,
            OPTIMIZER,
        ),
    ),
    "survived-then-spot": progress(1, 8, minute=10)
    + ranked(2, *traceback(BOTO, MAIN, LOADER))
    + progress(8, 50, minute=20)
    + "2026-03-14 09:31:00 WARNING agent: Spot interruption notice received, 120 s left\n"
    "W0314 09:33:00.101000 4100 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting"
    " down workers\n",
    "hub-timeout": ranked(
        0, *traceback("TimeoutError: The read operation timed out", ("/opt/python/lib/ssl.py", 1166, "read", "x"))
    )
    + ranked(0, "", "During handling of the above exception, another exception occurred:", "")
    + ranked(
        0,
        *traceback(
            "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co',"
            " port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1f)')",
            MAIN,
            (f"{SITE}/transformers/modeling_utils.py", 311, "from_pretrained", "return func(*args)"),
        ),
    ),
    "s3-in-worker": ranked(
        3,
        *traceback(
            "botocore.exceptions.ReadTimeoutError: Caught ReadTimeoutError in DataLoader worker process 2."
            "\nOriginal Traceback (most recent call last):",
            MAIN,
            LOADER,
        ),
    )
    + ranked(3, f'  File "{WORKER[0]}", line 349, in _worker_loop', "    data = fetcher.fetch(index)", BOTO),
    "shared-memory": ranked(
        1,
        *traceback(
            "RuntimeError: DataLoader worker (pid 811) is killed by signal: Bus error. It is possible that"
            " dataloader's workers are out of shared memory. Please try to raise your shared memory"
            " limit.",
            MAIN,
            LOADER,
        ),
    ),
    "infiniband": "gpu-03:5121:5310 [6] NCCL WARN NET/IB : Got completion from peer 10.0.0.4<47510> with status=12 opcode=0 len=0"
    " vendor err 129 (Recv)\n" + watchdog(0, 118, 117) + watchdog(6, 118, 117),
    "plain-memory": "\n".join(
        traceback("MemoryError", MAIN, ("/srv/run/train.py", 12, "get_batch", "rows = list(reader)"))
    )
    + "\n",
    "restarts": "I0314 09:00:00.100000 1 torch/distributed/elastic/agent/server/api.py:525] [default] Starting worker group\n"
    + progress(1, 5, minute=1)
    + ranked(1, *traceback("AssertionError: loss is not finite", MAIN, STEP))
    + "E0314 09:02:07.313000 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1"
    " (pid: 11) of binary: /opt/venv/bin/python\n"
    "I0314 09:02:08.100000 1 torch/distributed/elastic/agent/server/api.py:910] [default] Worker group FAILED. 2/3 attempts"
    " left; will restart worker group\n"
    + progress(3, 7, minute=5)
    + ranked(
        0,
        *traceback(
            "OSError: [Errno 5] Input/output error: '/scratch/ckpt'",
            MAIN,
            (f"{SITE}/torch/serialization.py", 966, "save", "with _open_zipfile_writer(f) as file:"),
        ),
    ),
    "progress-bars": "".join(
        f"\rEpoch 1:  {part}%|\u2588\u2588  | {part}/100 [00:01<00:09, 9.9it/s, loss=2.31, step={part}]"
        for part in range(5)
    )
    + "\x1b[31m[rank0]:\x1b[0m Traceback (most recent call last):\n"
    '\x1b[31m[rank0]:\x1b[0m   File \x1b[35m"/srv/run/data.py"\x1b[0m, line \x1b[35m8\x1b[0m, in \x1b[35m__getitem__\x1b[0m\n'
    "\x1b[31m[rank0]:\x1b[0m     return self.rows[index]\n"
    "\x1b[31m[rank0]:\x1b[0m \x1b[1;35mIndexError\x1b[0m: \x1b[35mlist index out of range\x1b[0m\n",
    "file-handler": "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
    '  File "/srv/run/kernels.py", line 71 in fused\n'
    "srun: error: gpu-09: task 4: Segmentation fault (core dumped)\n",
}
"""Text of each excerpt."""

EXPECTED = {
    "nccl-desync": ("communication", 5, "unknown", ""),
    "nccl-silent-rank": ("communication", 3, "unknown", ""),
    "cuda-oom": ("out_of_memory", 3, "forward", ""),
    "oom-in-backward": ("out_of_memory", 1, "backward", ""),
    "time-limit": ("preemption", None, "unknown", "gpu-11"),
    "preempted": ("preemption", None, "unknown", "gpu-11"),
    "scancel": ("preemption", None, "unknown", "gpu-3"),
    "node-failure": ("device", None, "unknown", "gpu-14"),
    "slurm-oom": ("out_of_memory", 9, "unknown", "gpu-07"),
    "kernel-oom": ("out_of_memory", 2, "unknown", "gpu-02"),
    "xid": ("device", 2, "unknown", ""),
    "ecc": ("device", 6, "backward", ""),
    "illegal-access": ("device", 4, "unknown", ""),
    "device-assert": ("assertion", 0, "forward", ""),
    "interleaved": ("assertion", None, "unknown", ""),
    "srun-label": ("code", 1, "forward", "gpu-02"),
    "optimizer": ("code", 0, "optimizer", ""),
    "survived-then-spot": ("preemption", None, "unknown", ""),
    "hub-timeout": ("io", 0, "start", ""),
    "s3-in-worker": ("io", 3, "data", ""),
    "shared-memory": ("out_of_memory", 1, "data", ""),
    "infiniband": ("communication", None, "start", "gpu-03"),
    "plain-memory": ("out_of_memory", None, "data", ""),
    "restarts": ("io", 0, "checkpoint", ""),
    "progress-bars": ("data", 0, "data", ""),
    "file-handler": ("killed", 4, "start", "gpu-09"),
}
"""Class, rank, stage and node of the first failure."""

RECORDED = {
    "allocator": ("out_of_memory", 1, "forward", "node01"),
    "assertion": ("assertion", 2, "forward", "node01"),
    "bad-row": ("data", 0, "data", "node01"),
    "disk-full": ("io", 0, "checkpoint", "node01"),
    "evaluation": ("code", 1, "evaluation", "node01"),
    "hang": ("communication", 2, "unknown", "node01"),
    "killed": ("killed", 2, "unknown", "node01"),
    "late": ("communication", 2, "start", "node01"),
    "lost-shard": ("io", 0, "data", "node01"),
    "memory": ("out_of_memory", 2, "forward", "node01"),
    "per-rank": ("assertion", 1, "forward", "node01"),
    "record": ("assertion", 3, "forward", "node01"),
    "restart": ("assertion", 1, "forward", ""),
    "segfault": ("killed", 1, "unknown", "node01"),
    "shapes": ("code", 1, "forward", "node01"),
    "tee": ("assertion", 1, "forward", "node01"),
    "terminated": ("preemption", None, "unknown", ""),
    "worker-killed": ("killed", 0, "data", "node01"),
}
"""The same of the logs in tests/live_logs/recorded."""

HEALTHY = {
    "megatron": "using world size: 8, data-parallel size: 8\n  log_num_zeros_in_grad ........................... False\n"
    "  error_injection_rate ............................ 0\n  exit_on_missing_checkpoint ...................... False\n"
    "  distributed_timeout_minutes ..................... 10\n"
    + progress(1, 400)
    + "saving checkpoint at iteration      400 to /ckpt in torch_dist format\n"
    "  successfully saved checkpoint from iteration     400 to /ckpt [ t 1/1, p 1/1 ]\n"
    " validation loss at iteration 400 | lm loss value: 2.312E+00 | lm loss PPL: 1.009E+01 |\n",
    "trainer": "2026-03-14 09:00:00 - WARNING - huggingface_hub.utils._http - '(ReadTimeoutError(\"HTTPSConnectionPool(host="
    "'huggingface.co', port=443): Read timed out.\"), '(Request ID: 1f)')' thrown while requesting GET https://huggingface.co/a\n"
    "Retrying in 1s [Retry 1/5].\n"
    + "".join(
        f"{{'loss': 2.{step % 90 + 10}, 'grad_norm': 0.4, 'learning_rate': 3e-05, 'mean_token_error': 0.41, 'step': {step}}}\n"
        for step in range(1, 300)
    )
    + "eval_word_error_rate = 0.113, eval_errors = 12\nwarning: on SIGTERM received a checkpoint is written; timeout 600 s\n"
    "Some weights were not used; this IS expected. 0 failed, 0 killed, out of 128 workers.\nTraining completed.\n",
    "nccl-info": "gpu-01:411:411 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
    "gpu-01:411:411 [0] NCCL INFO NCCL_ASYNC_ERROR_HANDLING set by environment to 1.\n"
    "gpu-01:411:505 [0] NCCL INFO NET/IB : No device found.\n"
    "[rank0]:[I314 09:00:01.1 ProcessGroupNCCL.cpp:1025] [PG ID 0 PG GUID 0(default_pg) Rank 0] ProcessGroupNCCL environments:"
    " NCCL version: 2.27.5, TORCH_NCCL_ASYNC_ERROR_HANDLING: 3, TORCH_NCCL_ENABLE_TIMING: 0, TIMEOUT(ms): 600000\n"
    "W0314 09:00:02.101000 1 torch/distributed/run.py:852] Setting OMP_NUM_THREADS environment variable for each process to be 1\n"
    "Mar 14 09:00:03 gpu-01 kernel: nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver\n"
    "2026-03-14T09:00:04Z INFO catch Exception: retry handler installed; Killed=0 oom=0 no space left: no\n"
    "2026-03-14T09:00:05Z INFO document 'Traceback of an error: fatal, killed by signal 9' tokenized\n"
    + progress(1, 40),
}
"""Logs of runs to which nothing has happened."""

FORMS = {
    "deepspeed-pdsh": (
        "node03: Traceback (most recent call last):\n"
        'node03:   File "train.py", line 3, in <module>\n'
        "node03:     main()\n"
        "node03: RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "device",
    ),
    "ds-launch": (
        "[2026-03-14 09:31:00,123] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 4203\n"
        "[2026-03-14 09:31:00,124] [ERROR] [launch.py:322:sigkill_handler] ['/opt/venv/bin/python', 'train.py'] exits with return code = -9\n",
        "killed",
    ),
    "logging-exc": (
        "2026-03-14 09:31:00,123 ERROR trainer: step failed\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/t.py", line 3, in train_step\n'
        "    x\n"
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity)\n",
        "out_of_memory",
    ),
    "lightning": (
        "2026-03-14 09:31:00 rank_zero: x\n"
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank1]:     main()\n"
        '[rank1]:   File "/srv/run/train.py", line 150, in main\n'
        "[rank1]:     loss = model(batch).loss\n"
        "[rank1]: ValueError: not enough values to unpack (expected 2, got 1)\n",
        "code",
    ),
    "ray": (
        "\x1b[36m(TrainTrainable pid=4203, ip=10.0.0.3)\x1b[0m Traceback (most recent call last):\n"
        '\x1b[36m(TrainTrainable pid=4203, ip=10.0.0.3)\x1b[0m   File "/srv/t.py", line 3, in loop\n'
        "\x1b[36m(TrainTrainable pid=4203, ip=10.0.0.3)\x1b[0m     x()\n"
        "\x1b[36m(TrainTrainable pid=4203, ip=10.0.0.3)\x1b[0m KeyError: 'input_ids'\n",
        "code",
    ),
    "k8s": (
        "2026-03-14T09:31:00.123456789Z stderr F Traceback (most recent call last):\n"
        '2026-03-14T09:31:00.123456790Z stderr F   File "/srv/t.py", line 3, in loop\n'
        "2026-03-14T09:31:00.123456791Z stderr F     x()\n"
        "2026-03-14T09:31:00.123456792Z stderr F OSError: [Errno 28] No space left on device\n",
        "io",
    ),
    "bus": ("/usr/bin/bash: line 1:  4203 Bus error               (core dumped) python train.py\n", "killed"),
    "segv": ("train.sh: line 9:  4203 Segmentation fault      (core dumped) python train.py\n", "killed"),
    "killed-sh": ("train.sh: line 9:  4203 Killed                  python train.py\n", "killed"),
    "terminate": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n"
        "  what():  std::bad_alloc\n"
        "Aborted (core dumped)\n",
        "out_of_memory",
    ),
    "hydra": (
        "Error executing job with overrides: ['a=1']\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/t.py", line 3, in loop\n'
        "    x()\n"
        "hydra.errors.InstantiationException: Error in call to target 'a.B':\n"
        "TypeError('x')\n"
        "full_key: model\n",
        "unknown",
    ),
    "nonfinite": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/megatron/training.py", line 3, in train_step\n'
        "[rank0]:     x()\n"
        "[rank0]: AssertionError: Rank 0: found NaN in local grad norm in backward pass before data-parallel communication collective\n",
        "assertion",
    ),
    "slurm-exceeded": (
        "slurmstepd: error: Exceeded job memory limit at some point.\n"
        "slurmstepd: error: Job 12 exceeded memory limit (102400 > 65536), being killed\n",
        "out_of_memory",
    ),
    "srun-timeout": (
        "srun: error: gpu-03: task 3: Exited with exit code 143\nsrun: Job step aborted: Waiting up to 32 seconds\n",
        "unknown",
    ),
    "jax": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\n",
        "out_of_memory",
    ),
    "store": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/t.py", line 3, in loop\n'
        "[rank0]:     x()\n"
        "[rank0]: torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (gpu-01, 29500). The IPv6 network addresses of (gpu-01, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n",
        "communication",
    ),
    "accelerate": (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank2]:     main()\n"
        '[rank2]:   File "/srv/run/train.py", line 150, in main\n'
        "[rank2]:     loss = model(batch).loss\n"
        '[rank2]:   File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1775, in _wrapped_call_impl\n'
        "[rank2]:     return self._call_impl(*args, **kwargs)\n"
        "[rank2]: RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n",
        "device",
    ),
    "journald": (
        "Mar 14 09:31:00 gpu-05 python[4203]: Traceback (most recent call last):\n"
        'Mar 14 09:31:00 gpu-05 python[4203]:   File "/srv/run/train.py", line 210, in <module>\n'
        "Mar 14 09:31:00 gpu-05 python[4203]:     main()\n"
        'Mar 14 09:31:00 gpu-05 python[4203]:   File "/srv/run/train.py", line 150, in main\n'
        "Mar 14 09:31:00 gpu-05 python[4203]:     loss = model(batch).loss\n"
        "Mar 14 09:31:00 gpu-05 python[4203]: PermissionError: [Errno 13] Permission denied: '/data/x'\n",
        "io",
    ),
    "mpirun": (
        "[1,3]<stderr>:Traceback (most recent call last):\n"
        '[1,3]<stderr>:  File "/srv/run/train.py", line 210, in <module>\n'
        "[1,3]<stderr>:    main()\n"
        '[1,3]<stderr>:  File "/srv/run/train.py", line 150, in main\n'
        "[1,3]<stderr>:    loss = model(batch).loss\n"
        "[1,3]<stderr>:AssertionError: bad\n"
        "prterun noticed that process rank 3 with PID 4203 on node gpu-02 exited on signal 9 (Killed).\n",
        "assertion",
    ),
    "mpikill": (
        "prterun noticed that process rank 3 with PID 4203 on node gpu-02 exited on signal 9 (Killed).\n",
        "killed",
    ),
    "hb-monitor": (
        "[rank7]:[E0314 09:30:14.1 ProcessGroupNCCL.cpp:1453] [PG ID 0 PG GUID 0 Rank 7] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=1\n",
        "communication",
    ),
    "monitored": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        "[rank0]: RuntimeError: Rank 3 failed to pass monitoredBarrier in 30000 ms\n",
        "communication",
    ),
    "kube-oom": ("2026-03-14T09:31:00Z kubelet: Container trainer OOMKilled exit code 137\n", "out_of_memory"),
    "elastic-noroot": (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 5012) of binary: /usr/bin/python3\n",
        "killed",
    ),
    "hf-datasets": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        "[rank0]: datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset\n",
        "data",
    ),
    "safetensors": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        '[rank0]:   File "/opt/venv/lib/python3.11/site-packages/safetensors/torch.py", line 1, in load_file\n'
        "[rank0]:     x\n"
        "[rank0]: safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer\n",
        "io",
    ),
    "pickle": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        '[rank0]:   File "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", line 1, in load\n'
        "[rank0]:     x\n"
        "[rank0]: _pickle.UnpicklingError: pickle data was truncated\n",
        "io",
    ),
    "nan-loss": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        "[rank0]: FloatingPointError: Loss is nan, stopping training\n",
        "assertion",
    ),
    "gcs": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank0]:     main()\n"
        "[rank0]: google.api_core.exceptions.ServiceUnavailable: 503 POST https://storage.googleapis.com/x\n",
        "io",
    ),
    "megatron-sig": (
        " [2026-03-14 09:20:01] iteration        1/  500000 | consumed samples:         1024 | elapsed time per iteration (ms): 812.4 | learning rate: 3.000000E-04 | global batch size:  1024 | lm loss: 2.311E+00 | loss scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        " [2026-03-14 09:20:02] iteration        2/  500000 | consumed samples:         2048 | elapsed time per iteration (ms): 812.4 | learning rate: 3.000000E-04 | global batch size:  1024 | lm loss: 2.312E+00 | loss scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        "exiting program after receiving SIGTERM.\n",
        "preemption",
    ),
    "oserror-sock": (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/srv/run/train.py", line 210, in <module>\n'
        "[rank1]:     main()\n"
        "[rank1]: OSError: [Errno 98] Address already in use\n",
        "io",
    ),
    "slurm-node": (
        "srun: error: Task launch for StepId=77.0 failed on node gpu-09: Communication connection failure\n",
        "device",
    ),
    "ib": (
        "[1710408600.1] mlx5_core 0000:9d:00.0: Port 1 link down\n"
        "[rank1]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194304, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
        "[rank1]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 1] failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 5, last completed work: 4\n"
        "[rank1]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:681] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.\n"
        "[rank1]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:695] [Rank 1] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        "[rank1]: terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "[rank1]:   what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation timeout\n"
        "[rank0]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194304, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
        "[rank0]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 0] failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 5, last completed work: 4\n"
        "[rank0]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:681] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.\n"
        "[rank0]:[E0314 09:30:14.123456789 ProcessGroupNCCL.cpp:695] [Rank 0] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        "[rank0]: terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "[rank0]:   what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: [Rank 0] Watchdog caught collective operation timeout\n",
        "communication",
    ),
    "older-elastic": (
        "W0314 09:31:00.1 5 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM death signal, shutting down workers\n",
        "preemption",
    ),
    "syntax": ("  File \"/srv/t.py\", line 3\n    def x(\n         ^\nSyntaxError: '(' was never closed\n", "code"),
    "webdataset": (
        ranked(
            5,
            *traceback(
                "ValueError: ('tar file truncated', 'a.tar')",
                MAIN,
                (f"{SITE}/webdataset/tariterators.py", 1, "it", "x"),
            ),
        ),
        "data",
    ),
}
"""Forms of further programs, each with the class of its first failure."""
