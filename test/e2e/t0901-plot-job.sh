# timeout=120
# scripts/plot-job draws a finished job: the throughput rises at the mark of a join and falls at that of the leave; a
# killed worker has another mark. Without workers' logs it draws what dtctl status showed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
plot="$DT_SOURCE/scripts/plot-job"
run folder "$plot" "$T/nothing" "$T/job.svg"
expect_status 2
expect_output folder "^plot-job: $T/nothing/.dtlaunch/current.json: No such file or directory; give the folder in which dtlaunch was started$"
run word "$plot" .
expect_status 2

train -n 2 --max-restarts 0 -- --steps-per-epoch 10 --step-ms 60  # which a busy machine has time for
start watch dtctl status --json --watch
watch=$PID
some_epochs 2
dtctl add localhost
changed 'ADDED localhost'
some_epochs 4
dtctl remove localhost
changed 'ADDED localhost' 'REMOVED localhost'
looks=$(wc -l <"$T/watch.out")
some_epochs 2
kill -9 "$(pid_of workers 1)"
changed 'ADDED localhost' 'REMOVED localhost' 'REMOVED localhost'
some_epochs 1
end_job
finished watch "$watch" 10

run steps "$plot" . "$T/job.svg"
expect_status 2
expect_output steps "^plot-job: \.: no \*\.jsonl with steps of this job; .* dttrain --log"
head -n "$looks" "$T/watch.out" >status.jsonl  # what came after the last look has its mark, too
run gnuplot env PATH="$T" /usr/bin/python3 "$plot" . "$T/job.svg"
expect_status 1
expect_output gnuplot 'apt-get install gnuplot-nox'
command -v gnuplot >/dev/null || skip "gnuplot is missing"
run watched "$plot" . "$T/watched.svg"
expect_status 0
cp "$T"/w*.jsonl .
run draw "$plot" . "$T/job.svg"
expect_status 0
[ -z "$(output draw)" ] || fail "not silent: $(output draw)"
python3 - "$T/job.svg" "$T/watched.svg" <<'EOT' || fail "the picture"
import re, statistics, sys, xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
def read(name):
    root = tree.parse(name).getroot()
    marks = {text.text: float(re.search(r"\(([\d.]+)", group.get("transform"))[1])
             for group in root.iter(svg + "g") for text in group.findall(svg + "text")}
    curve = [tuple(map(float, point.split(","))) for path in root.iter(svg + "path") if "31, 119, 180" in path.get("stroke", "")
             for point in re.findall(r"[\d.]+,[\d.]+", path.get("d"))]
    return marks, curve
marks, curve = read(sys.argv[2])
if not {"localhost joins", "localhost leaves", "localhost fails"} <= marks.keys() or len({y for _, y in curve}) < 3:
    sys.exit(f"the job as it was watched: {marks} {curve}")
marks, curve = read(sys.argv[1])
join, leave = marks["localhost joins"], marks["localhost leaves"]
floor = max(y for _, y in curve)
two = statistics.median(floor - y for x, y in curve if x < join - 20)
three = statistics.median(floor - y for x, y in curve if join + 20 < x < leave - 20)
print(f"join at {join}, leave at {leave}; two workers {two}, three {three}")
sys.exit(not (join < leave < marks["localhost fails"] and 1.25 * two < three))
EOT
