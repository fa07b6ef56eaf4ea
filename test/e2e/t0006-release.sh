# timeout=900 cost=300 nightly package needs=dttrain
# A release: twice from one commit, in two folders, the same bytes; what is not one commit with a tag and notes is refused.
compiled=$(ccache --get-config cache_dir 2>/dev/null || true)  # lib.sh gives a test a cache of its own
. "$(dirname "$0")/lib.sh"
for tool in patchelf dpkg-shlibdeps; do
  command -v $tool >/dev/null || skip "no $tool here"
done
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
# The tree as it is, with what no commit has.
mkdir "$T/one"
(cd "$DT_SOURCE" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$T/one" 2>/dev/null) || true
cd "$T/one"
git init -q . && git add -A && git commit -qm 'All of it'

# refused NAME WORDS: in one line, before anything is built.
refused() {
  run "$1" scripts/release "$T/out-$1"
  expect_status 1
  [ "$(wc -l <"$T/$1.out")" = 1 ] || fail "more than one line: $(output "$1")"
  expect_output "$1" "$2"
  [ ! -e "$T/out-$1" ] || fail "files of a refused release"
}
refused untagged 'does not have the tag v[0-9.]+: git tag'
version=$(sed -nE 's/^project\(.* VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
git tag "v$version"
echo >>README.md
refused dirty 'has changes that no commit has'
git checkout -q README.md
touch kvstore/python/dtkv/stray.py
refused stray 'has changes that no commit has'
rm kvstore/python/dtkv/stray.py
mkdir "$T/out-full" && touch "$T/out-full/x"
run full scripts/release "$T/out-full"
expect_status 1
expect_output full 'is not empty'
sed -i "s/ VERSION $version / VERSION 9.8.7 /" CMakeLists.txt
git commit -qam 'Another version'
git tag v9.8.7
refused heading 'has no heading `## 9.8.7 \(YYYY-MM-DD\)`'
git reset -q --hard HEAD^
git commit -q --allow-empty -m 'After the tag'
refused old-tag 'does not have the tag'
git reset -q --hard HEAD^

# A folder of another name. Where ccache has the first one's objects, the second takes them, unless its folder is in them.
git clone -q "$T/one" "$T/another-name"
export CCACHE_NOHASHDIR=1
[ -z "$compiled" ] || export CCACHE_DIR=$compiled
for clone in one another-name; do
  run "$clone" env -u LC_ALL CCACHE_BASEDIR="$T/$clone" "$T/$clone/scripts/release" "$T/$clone.release"
  expect_status 0
done
diff -r "$T/one.release" "$T/another-name.release" || fail "the same commit makes other bytes"
cd "$T/one.release"
sha256sum --quiet -c SHA256SUMS || fail "a wrong sum"
for file in "dtlaunch-$version-py3-none-manylinux_2_34_x86_64.whl" "dtlaunch-$version.tar.gz" "dtlaunch_${version}_amd64.deb" NOTES.md; do
  [ -s "$file" ] || fail "no $file: $(ls)"
done
tar -tzf "dtlaunch-$version.tar.gz" >"$T/archive.out"
expect_output archive "^dtlaunch-$version/scripts/release$"
dpkg-deb --fsys-tarfile "dtlaunch_${version}_amd64.deb" | tar -xO ./usr/share/doc/dtlaunch/changelog.gz | gzip -dc >"$T/changelog.out"
expect_output changelog "^dtlaunch \($version\) unstable"
expect_output changelog '^  \* '
