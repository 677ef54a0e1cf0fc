mkdir -p tools internal
printf 'bin/\n' > .gitignore
printf 'module example.org/app\n\ngo 1.22\n' > go.mod
cat > main.go <<'EOF'
package main

import "fmt"

func main() {
	fmt.Printf("hello")
}
EOF
printf 'package main\n\nfunc TestMain() {}\n' > main_test.go
printf 'one\ntwo\n' > internal/names.txt
# stand-ins that write what the real programs write
cat > tools/go <<'EOF'
#!/bin/sh
case "$1" in
build)
  if [ "$2" = -o ]; then
    mkdir -p "$(dirname "$3")"
    printf '#!/bin/sh\necho hello\n' > "$3"
    chmod +x "$3"
  fi ;;
vet) grep -n 'Printf("hello")' ./*.go ;;
test) echo "ok example.org/app 0.01s" ;;
get)
  printf '\nrequire %s\n' "$(echo "$2" | tr @ ' ')" >> go.mod
  echo "$2 h1:abc=" >> go.sum ;;
mod) sort -u -o go.sum go.sum ;;
generate) cat $(find internal -name names.txt) | sed 's/.*/const & = 1/' > internal/zz_generated.go ;;
esac
exit 0
EOF
cat > tools/gofmt <<'EOF'
#!/bin/sh
[ "$1" = -w ] && sed -i 's/[ \t]*$//' "$2"
exit 0
EOF
chmod +x tools/go tools/gofmt
