# A program for the Linux guest: answers every datagram to UDP port 7 with itself.
# Assembled for 64 bits and linked alone; it runs until it is killed.

        .globl _start
        .text
_start:
        mov $41, %eax                   # socket(AF_INET, SOCK_DGRAM, 0)
        mov $2, %edi
        mov $2, %esi
        xor %edx, %edx
        syscall
        mov %eax, %ebx
        mov $49, %eax                   # bind to any address, port 7
        mov %ebx, %edi
        lea own(%rip), %rsi
        mov $16, %edx
        syscall
        test %eax, %eax
        jnz end
again:  movl $16, length(%rip)
        mov $45, %eax                   # recvfrom
        mov %ebx, %edi
        lea datagram(%rip), %rsi
        mov $2048, %edx
        xor %r10d, %r10d
        lea peer(%rip), %r8
        lea length(%rip), %r9
        syscall
        test %eax, %eax
        js end
        mov %eax, %edx                  # sendto the same, as much as came
        mov $44, %eax
        mov %ebx, %edi
        lea datagram(%rip), %rsi
        xor %r10d, %r10d
        lea peer(%rip), %r8
        mov length(%rip), %r9d
        syscall
        jmp again
end:    mov $60, %eax                   # exit(1)
        mov $1, %edi
        syscall

        .data
own:    .word 2
        .byte 0, 7
        .zero 12
        .bss
length: .skip 4
peer:   .skip 16
datagram: .skip 2048
