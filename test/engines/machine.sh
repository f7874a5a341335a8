# What gives this machine engines for tests and figures, for scripts that source
# it: packages, an image, a storage of Podman's and a daemon of Docker's that
# nothing else uses. All of it is gone when the script ends. It wants `top`, the
# tree, and `engines`, an array of the engines that are wanted.
# shellcheck shell=bash

say() { printf '\n=== %s\n' "$*"; }
wants() { case " ${engines[*]} " in *" $1"*) return 0 ;; esac; return 1; }

# What is missing of Debian's packages.
packages() {
    local missing=()
    if wants podman; then
        command -v podman >/dev/null || missing+=(podman)
        command -v runc >/dev/null || missing+=(runc)
        command -v newuidmap >/dev/null || missing+=(uidmap)
    fi
    if wants docker; then
        command -v dockerd >/dev/null || missing+=(docker.io)
    fi
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ $install = no ] || ! command -v apt-get >/dev/null; then
        echo "test/engines/run: missing: ${missing[*]}" >&2
        return 1
    fi
    say "installing ${missing[*]}"
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Everything that must not outlive this script, in a place that ordinary users
# can enter.
work=$(mktemp -d /tmp/sallyport-engines-XXXXXX)
chmod 755 "$work"
docker_pid=''
clean_up() {
    set +e
    local file
    for file in "$work"/*/service.pid; do
        [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null
    done
    if [ -n "$docker_pid" ]; then
        kill "$docker_pid" 2>/dev/null
        wait "$docker_pid" 2>/dev/null
    fi
    if [ -e "$work/podman/storage.conf" ]; then
        as_podman podman rm --all --force --time 0 >/dev/null 2>&1
    fi
    if [ -n "${test_user:-}" ] && [ -e "$work/user/storage.conf" ]; then
        as_user podman rm --all --force --time 0 >/dev/null 2>&1
        # Its pause process holds the storage's mounts.
        as_user podman system migrate >/dev/null 2>&1
    fi
    # Deepest first: engines mount their storage upon itself.
    awk -v at="$work/" 'index($2, at) == 1 {print $2}' /proc/mounts | sort -r | while read -r point; do
        umount -l "$point" 2>/dev/null
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

storage() { # DIR DRIVER: a storage of Podman's own below DIR
    mkdir -p "$1/graph" "$1/runroot"
    printf '[storage]\ndriver = "%s"\ngraphroot = "%s/graph"\nrunroot = "%s/runroot"\n' "$2" "$1" "$1" >"$1/storage.conf"
}
as_podman() { env CONTAINERS_STORAGE_CONF="$work/podman/storage.conf" "$@"; }
as_user() {
    (cd "$work/user/home" && runuser -u "$test_user" -- env -i HOME="$work/user/home" TMPDIR="$work/user/tmp" \
        PATH=/usr/bin:/bin LANG=C.UTF-8 XDG_RUNTIME_DIR="$work/user/run" \
        CONTAINERS_STORAGE_CONF="$work/user/storage.conf" "$@")
}

image=localhost/sallyport-test:1
# A machine's default runtime may refuse its control groups: the first that
# starts a container is taken.
pick_runtime() { # FUNCTION: as whom to call podman
    local r
    for r in '' runc crun; do
        if "$1" timeout 60 podman ${r:+--runtime "$r"} run --rm --network none --ulimit nofile=256:256 --ulimit nproc=256:256 \
            "$image" true >/dev/null 2>&1; then
            echo "$r"
            return
        fi
    done
    echo "test/engines/run: podman starts no container with its own runtime, runc or crun" >&2
    return 1
}

podman_root() {
    [ -e "$work/podman/storage.conf" ] && return
    storage "$work/podman" overlay
    as_podman podman import -q --change 'CMD ["python3"]' "$archive" "$image" >/dev/null || {
        # It has mounted the storage's folder upon itself.
        umount -l "$work/podman/graph/overlay" 2>/dev/null || true
        rm -rf "$work/podman"
        storage "$work/podman" vfs
        as_podman podman import -q --change 'CMD ["python3"]' "$archive" "$image" >/dev/null
    }
    podman_runtime=$(pick_runtime as_podman)
}

# podman_service FUNCTION DIR RUNTIME: a service of the storage in DIR, started by
# FUNCTION. Its environment has what must not reach a container.
podman_service() {
    # shellcheck disable=SC2016 # for the shell that is started
    "$1" env -C "$2" HTTP_PROXY=http://service-secret@proxy.invalid SERVICE_SECRET=service-secret \
        sh -c 'echo $$ >service.pid; exec "$@"' sh podman ${3:+--runtime "$3"} system service --time 0 \
        "unix://$2/service.sock" >"$2/service.log" 2>&1 &
    local n
    for n in $(seq 100); do
        [ ! -S "$2/service.sock" ] || return 0
        sleep 0.1
    done
    cat "$2/service.log" >&2
    return 1
}

podman_user() {
    [ -e "$work/user/storage.conf" ] && return
    if ! grep -q "^$test_user:" /etc/subuid; then
        usermod --add-subuids 165536-231071 --add-subgids 165536-231071 "$test_user"
    fi
    storage "$work/user" overlay
    chown -R "$test_user:" "$work/user"
    as_user podman import -q --change 'CMD ["python3"]' "$archive" "$image" >/dev/null 2>&1 || {
        rm -rf "$work/user/graph" "$work/user/runroot"
        storage "$work/user" vfs
        chown -R "$test_user:" "$work/user"
        as_user podman import -q --change 'CMD ["python3"]' "$archive" "$image" >/dev/null
    }
    user_runtime=$(pick_runtime as_user)
}

docker_daemon() { # DRIVER
    local d=$work/docker n
    mkdir -p "$d"
    export DOCKER_HOST=unix://$d/d.sock
    dockerd --data-root "$d/root" --exec-root "$d/exec" -H "$DOCKER_HOST" -p "$d/pid" \
        --iptables=false --bridge=none --storage-driver "$1" >"$d/log" 2>&1 &
    docker_pid=$!
    for n in $(seq 200); do
        docker info >/dev/null 2>&1 && return
        kill -0 "$docker_pid" 2>/dev/null || break
        [ "$n" -lt 200 ] && sleep 0.3
    done
    tail -n 3 "$d/log" >&2
    kill "$docker_pid" 2>/dev/null
    wait "$docker_pid" 2>/dev/null
    docker_pid=''
    return 1
}

docker_root() {
    # Not every place can hold an overlay; copies always work, and take longer.
    docker_daemon overlay2 || docker_daemon vfs || return 1
    docker import --change 'CMD ["python3"]' "$archive" "$image" >/dev/null
}

# share_executable puts the program where every user may run it, and says so in
# SALLYPORT_BIN. Under a name that begins with runsc it is an OCI runtime.
share_executable() {
    if [ -z "${SALLYPORT_BIN:-}" ]; then
        go build -trimpath -o bin/sallyport ./cmd/sallyport
        SALLYPORT_BIN=$top/bin/sallyport
    fi
    cp "$SALLYPORT_BIN" "$work/sallyport"
    chmod 755 "$work/sallyport"
    export SALLYPORT_BIN=$work/sallyport
    ln -sf sallyport "$work/runsc-sallyport"
}

# make_image makes the archive that containers' images are imported from.
make_image() {
    if wants podman || wants docker; then
        archive=$work/image.tar
        cp "$(test/engines/image)" "$archive"
        chmod 644 "$archive"
        export SALLYPORT_TEST_IMAGE=$image SALLYPORT_TEST_ARCHIVE=$archive
    fi
}

# make_user makes sure of an ordinary user, where one is wanted, with a home for
# this time alone.
test_user=''
make_user() {
    case " ${engines[*]} " in *.user*) ;; *) return 0 ;; esac
    test_user=${SALLYPORT_TEST_USER:-sallyport-ci}
    id "$test_user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$test_user"
    mkdir -p "$work/user/home" "$work/user/tmp" "$work/user/run"
    chown -R "$test_user:" "$work/user"
    chmod 700 "$work/user/home" "$work/user/tmp" "$work/user/run"
}
