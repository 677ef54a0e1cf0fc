mkdir -p src test tools node_modules/.bin
printf 'node_modules/\ndist/\ncoverage/\n*.log\n' > .gitignore
cat > package.json <<'EOF'
{
  "name": "greeter",
  "scripts": {"build": "tsc -p .", "test": "jest"},
  "dependencies": {
    "left": "1.0.0"
  }
}
EOF
printf '{\n  "compilerOptions": {"strict": false, "outDir": "dist"}\n}\n' > tsconfig.json
cat > src/index.ts <<'EOF'
export function greet(name: string) {
  return "Hello, " + name
}
EOF
printf 'export const limit = 3\n' > src/limit.ts
printf 'test("greets", () => greet("you"));\n' > test/index.test.js
cat > server.py <<'EOF'
import http.server

print("starting", flush=True)
http.server.HTTPServer(("127.0.0.1", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
EOF
# stand-ins that write what the real programs write
cat > node_modules/.bin/tsc <<'EOF'
#!/bin/sh
case "$*" in *--noEmit*) exit 0 ;; esac
mkdir -p dist
for f in src/*.ts; do sed 's/: string//' "$f" > "dist/$(basename "$f" .ts).js"; done
EOF
cat > node_modules/.bin/eslint <<'EOF'
#!/bin/sh
touch .eslintcache
case "$*" in *--fix*) sed -i 's/const limit/const LIMIT/' src/*.ts ;; *) grep -n "limit" src/*.ts ;; esac
exit 0
EOF
cat > node_modules/.bin/prettier <<'EOF'
#!/bin/sh
case "$*" in *--write*) sed -i 's/\([^;{}]\)$/\1;/' src/*.ts ;; *) grep -L ";$" src/*.ts ;; esac
exit 0
EOF
cat > node_modules/.bin/jest <<'EOF'
#!/bin/sh
echo "tests: $(grep -c '^test(' test/index.test.js) passed"
EOF
cat > tools/npm <<'EOF'
#!/bin/sh
case "$1 $2" in
"run build") exec ./node_modules/.bin/tsc -p . ;;
"test "*) exec ./node_modules/.bin/jest ;;
"install "*)
  mkdir -p "node_modules/$2"
  echo "exports.z = {};" > "node_modules/$2/index.js"
  sed -i "s/\"left\"/\"$2\": \"3.0.0\",\n    \"left\"/" package.json
  echo "{\"$2\": \"3.0.0\"}" > package-lock.json ;;
esac
EOF
chmod +x node_modules/.bin/* tools/npm
