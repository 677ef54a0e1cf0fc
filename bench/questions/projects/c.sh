mkdir src include tests docs
printf 'build/\n' > .gitignore
printf '1.0\n' > VERSION
printf '# Start\n\nRun make.\n' > docs/start.md
printf '%s\n' '- more tests' > docs/todo.md
printf '#include <stdio.h>\nextern int count;\n' > include/app.h
cat > src/main.c <<'EOF'
#include "app.h"
int count = 1;
int main(void) {
  puts("hello");
  return 0;
}
EOF
cat > cc.sh <<'EOF'
#!/bin/sh
# a stand-in for a compiler: the program prints what the source prints
sed -n 's/.*puts("\(.*\)").*/echo "\1"/p' src/*.c | sed '1i #!/bin/sh' > "$1"
chmod +x "$1"
EOF
chmod +x cc.sh
cat > Makefile <<'EOF'
build/app: $(wildcard src/*.c) include/app.h
	mkdir -p build
	./cc.sh $@
test: build/app
	./build/app | grep -q .
clean:
	rm -rf build
.PHONY: test clean
EOF
