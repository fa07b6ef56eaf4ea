# timeout=60
# Whose hosts a job begins on, by what schedulers leave in the environment. No scheduler is needed.
. "$(dirname "$0")/lib.sh"

# A task of a larger step: each exits with 2, and one of them says why.
for rank in 0 1 2 3; do
  run "task$rank" env SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=4 dtlaunch -n 1 true
  expect_status 2
done
expect_output task0 '^dtlaunch: srun has started dtlaunch 4 times, and each would start the whole job: start it once'
cat "$T"/task[123].out >"$T/others.out"
[ ! -s "$T/others.out" ] || fail "others speak, too: $(cat "$T/others.out")"
run rank1 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 dtlaunch -n 1 true
expect_status 2
run help env SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 dtlaunch --help
expect_status 0

# A shell that has outlived its Slurm job: squeue knows no such job, or is not there.
run stale env SLURM_JOB_ID=4294000 'SLURM_JOB_NODELIST=n[1-2]' dtlaunch true
expect_status 2
expect_output stale '^dtlaunch: SLURM_JOB_ID is 4294000, .*unset SLURM_JOB_ID'
run unreadable env SLURM_JOB_ID=41 'SLURM_JOB_NODELIST=n[1-' dtlaunch true
expect_status 2
expect_output unreadable '^dtlaunch: SLURM_JOB_NODELIST:2: "\[" has no matching'
run local env SLURM_JOB_ID=4294000 'SLURM_JOB_NODELIST=n[1-2]' dtlaunch -n 1 --launcher local --dry-run true
expect_status 0
expect_output local 'on this machine'
printf 'a\nn2 via=ssh\n' >hosts
run others env SLURM_JOB_ID=4294000 'SLURM_JOB_NODELIST=n[1-2]' dtlaunch -n 2 -H hosts --dry-run true
expect_status 0
printf 'a\nn2\n' >hosts
run node env SLURM_JOB_ID=4294000 'SLURM_JOB_NODELIST=n[1-2]' dtlaunch -n 2 -H hosts --dry-run true
expect_status 2

# Slurm's controller restarts as a job begins: it is asked again.
mkdir "$T/fake"
cat >"$T/fake/squeue" <<END
#!/bin/sh
[ -e "$T/asked" ] && exec echo 'RUNNING|2030-01-01T00:00:00|n[1-2]'
touch "$T/asked"
echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2
exit 1
END
printf '#!/bin/sh\nexit 1\n' >"$T/fake/scontrol"
cp "$T/fake/scontrol" "$T/fake/srun"
chmod +x "$T"/fake/*
run away env PATH="$T/fake:$PATH" SLURM_JOB_ID=41 'SLURM_JOB_NODELIST=n[1-2]' dtlaunch --dry-run true
expect_status 0
expect_output away 'squeue: .*Unable to contact .*; asked again in 5 s$'
expect_output away '^Slurm job 41: n\[1-2\], 2 nodes'

# An SGE job is alive as long as its file of hosts.
run gone env JOB_ID=7 PE_HOSTFILE="$T/pe" dtlaunch true
expect_status 2
expect_output gone 'PE_HOSTFILE is .*/pe, which cannot be read: No such file or directory; its SGE job is over'
printf 'n1 2 all.q@n1 UNDEFINED\nn2 1 all.q@n2 <NULL>\n' >"$T/pe"
run sge env JOB_ID=7 PE_HOSTFILE="$T/pe" dtlaunch --dry-run train_cmd
expect_status 0
expect_output sge '^SGE job 7: n1,n2, 2 nodes, 3 workers, by qrsh \(--launcher local: this machine only\)$'
expect_output sge '^worker 1 +n1  train_cmd$'
expect_output sge '^worker 2 +n2  train_cmd$'
run many env JOB_ID=7 PE_HOSTFILE="$T/pe" dtlaunch -n 4 --dry-run train_cmd
expect_status 2
expect_output many '-n 4: SGE job 7 has 3 slots \(the slots of its parallel environment\)'

# One host has one way.
printf 'n1 via=slurm\nn2\nn1 via=ssh\n' >hosts
run twice dtlaunch -n 1 -H hosts true
expect_status 2
expect_output twice '^dtlaunch: hosts:3:4: n1 has via=slurm in line 1: one host is reached in one way$'
